"""Halving on made-up learning curves: which trials go on, which are pruned, and what it costs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.experiments.best_trial import ComparedTrial, best_trial
from paceline.cluster.experiments.facts import Rung
from paceline.cluster.experiments.halving import HalvingTrial, decide
from paceline.cluster.experiments.rungs import ladder
from paceline.cluster.experiments.spec import Halving, Metric

LOSS, ACCURACY = Metric(), Metric(name="eval_accuracy", goal="maximize")
Curve = Callable[[int], float]


@dataclass
class Sweep:
    """Trials with these curves on so many slots: a trial runs to its next rung, one step for one unit of time."""

    curves: Sequence[Curve]
    total: int = 81
    halving: Halving = field(default_factory=lambda: Halving(min_steps=9, factor=3))
    slots: int = 2
    metric: Metric = LOSS
    trials: dict[int, HalvingTrial] = field(default_factory=dict)
    failing: dict[int, int] = field(default_factory=dict)  # trial: the step that it fails at
    used: int = 0
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps = (*ladder(self.halving, self.total), self.total)
        self.trials = {index: HalvingTrial(index, "waiting") for index in range(len(self.curves))}
        self._left: dict[int, int] = {}  # of those that run: steps to their next stop

    def run(self, until: Callable[[Sweep], bool] = lambda _: False) -> Sweep:
        while self._assign() and not until(self):
            went = min(self._left.values())
            self.used += went * len(self._left)
            for index in sorted(self._left):
                self._left[index] -= went
                if not self._left[index]:
                    del self._left[index]
                    self._stop(index)
        return self

    def _assign(self) -> bool:
        decision = decide(self.metric, self.halving, self.steps, list(self.trials.values()))
        for pruning in decision.prune:
            self.reasons.append(pruning.why)
            self.trials[pruning.index] = replace(self.trials[pruning.index], state="pruned")
        waiting = [index for index, trial in self.trials.items() if trial.state == "waiting"]
        for index in [*waiting, *(promotion.index for promotion in decision.promote)][: self.slots - len(self._left)]:
            trial = self.trials[index]
            self.trials[index] = replace(trial, state="running")
            stop = self.steps[len(trial.rungs)]
            self._left[index] = min(stop, self.failing.get(index, stop)) - trial.step
        return bool(self._left)

    def _stop(self, index: int) -> None:
        trial = self.trials[index]
        step = self.steps[len(trial.rungs)]
        if index in self.failing and self.failing[index] < step:
            self.trials[index] = replace(trial, state="failed", step=self.failing[index])
            return
        value = self.curves[index](step)
        rungs = (*trial.rungs, Rung(step, value if math.isfinite(value) else None))
        self.trials[index] = replace(trial, state="completed" if step == self.total else "paused", step=step, rungs=rungs)

    @property
    def states(self) -> list[str]:
        return [trial.state for trial in self.trials.values()]

    @property
    def winner(self) -> int | None:
        return best_trial(self.metric, [ComparedTrial(each.index, each.state, None, each.rungs) for each in self.trials.values()]).trial


def falling_to(floor: float) -> Curve:
    return lambda step: floor + 1 / step


def sweep(*floors: float, **settings: Any) -> Sweep:
    return Sweep([falling_to(floor) for floor in floors], **settings)


def shuffled(count: int, seed: int = 0) -> list[float]:
    floors = [index / count for index in range(count)]
    random.Random(seed).shuffle(floors)
    return floors


# --- whole sweeps


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slots", [1, 2, 4, 27])
def test_the_best_of_27_is_found_at_a_quarter_of_the_cost(slots: int, seed: int) -> None:
    floors = shuffled(27, seed)
    done = sweep(*floors, slots=slots).run()
    assert done.winner == floors.index(0.0)
    assert (done.states.count("completed"), done.states.count("pruned")) == (3, 24)
    assert done.used == 27 * 9 + 9 * 18 + 3 * 54
    assert done.used / (27 * 81) < 0.26
    assert all("is not among the best" in reason for reason in done.reasons)


def test_the_greatest_is_best_where_the_metric_is_maximized() -> None:
    done = sweep(*shuffled(9), metric=ACCURACY).run()
    assert done.winner == shuffled(9).index(max(shuffled(9)))


def test_of_equal_trials_the_first_of_the_grid_wins() -> None:
    done = sweep(*[0.5] * 9).run()
    assert (done.winner, done.states.count("completed")) == (0, 1)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_however_few_there_are_one_comes_to_the_end(count: int) -> None:
    done = sweep(*shuffled(count), halving=Halving(min_steps=1, factor=4), total=64).run()
    assert done.trials[shuffled(count).index(0.0)].state == "completed"
    assert done.states == ["completed" if floor == 0.0 else "pruned" for floor in shuffled(count)]


def test_a_trial_that_diverges_is_pruned_and_never_the_best() -> None:
    floors = shuffled(9)
    curves: list[Curve] = [falling_to(floor) for floor in floors]
    curves[0] = lambda step: math.nan
    curves[1] = lambda step: math.inf if step > 5 else 0.0
    done = Sweep(curves).run()
    assert done.states[:2] == ["pruned", "pruned"]
    assert done.winner == floors.index(min(floors[2:]))
    assert "loss at step 9 is not finite" in done.reasons


def test_where_all_diverge_all_are_pruned_and_none_is_best() -> None:
    done = Sweep([lambda step: math.nan] * 4).run()
    assert (done.states, done.winner, done.used) == (["pruned"] * 4, None, 4 * 9)


def test_where_all_fail_the_sweep_ends_without_a_best() -> None:
    done = sweep(*shuffled(4), failing=dict.fromkeys(range(4), 5)).run()
    assert (done.states, done.winner) == (["failed"] * 4, None)


def test_a_trial_that_fails_gives_its_place_to_the_next() -> None:
    floors = shuffled(9)
    order = sorted(range(9), key=lambda index: floors[index])
    done = sweep(*floors, failing={order[0]: 50}).run()
    assert done.trials[order[0]].state == "failed"
    assert done.trials[order[1]].state == "completed"
    assert done.winner == order[1]


def test_a_trial_that_its_user_cancels_is_as_if_it_had_never_been() -> None:
    floors = shuffled(9)
    order = sorted(range(9), key=lambda index: floors[index])
    half = sweep(*floors).run(until=lambda now: any(trial.rungs and trial.state == "running" for trial in now.trials.values()))
    half._left.pop(order[0], None)
    half.trials[order[0]] = replace(half.trials[order[0]], state="cancelled")
    done = half.run()
    assert done.winner == order[1]
    assert done.states.count("cancelled") == 1
    assert not {"waiting", "running", "paused"} & set(done.states)


# --- single decisions


def at(index: int, *values: float | None, state: Any = "paused", steps: Sequence[int] = (9, 27, 81)) -> HalvingTrial:
    rungs = tuple(Rung(step, value) for step, value in zip(steps, values, strict=False))
    return HalvingTrial(index, state, step=rungs[-1].steps if rungs else 0, rungs=rungs)


def decided(*trials: HalvingTrial) -> tuple[list[int], list[int]]:
    decision = decide(LOSS, Halving(min_steps=9, factor=3), (9, 27, 81), trials)
    return [each.index for each in decision.promote], [each.index for each in decision.prune]


def test_nobody_waits_for_a_rung_to_be_full() -> None:
    waiting = [HalvingTrial(index, "waiting") for index in range(3, 9)]
    assert decided(at(0, 3.0), at(1, 1.0), *waiting) == ([], []), "one third of two is none, and more will come"
    assert decided(at(0, 3.0), at(1, 1.0), at(2, 2.0), *waiting) == ([1], [])


def test_those_of_the_highest_rung_go_first() -> None:
    high = [at(0, 1.0, 0.9), at(1, 1.1, 0.8), at(2, 1.2, 0.7)]
    low = [at(index, float(index)) for index in range(3, 12)]
    decision = decide(LOSS, Halving(min_steps=9, factor=3), (9, 27, 81), [*high, *low])
    assert [(each.index, each.to_step) for each in decision.promote] == [(2, 81), (3, 27)]
    assert decision.promote[0].why == "loss 0.7 at step 27 is number 1 of 3, of which 1 may go on to step 81"


def test_a_trial_that_was_promoted_keeps_its_place_among_the_best() -> None:
    assert decided(at(0, 1.0, state="running"), at(1, 1.1), at(2, 1.2)) == ([], [])


def test_a_trial_that_is_not_promoted_stays_as_long_as_a_better_one_may_fail() -> None:
    second, third = at(1, 1.1), at(2, 1.2)
    assert decided(at(0, 1.0, 0.5, state="running"), second, third) == ([], [])
    assert decided(replace(at(0, 1.0, 0.5), state="failed"), second, third) == ([1], [])
    assert decided(at(0, 1.0, 0.5, 0.1, state="completed"), second, third) == ([], [1, 2])


def test_a_trial_that_its_user_paused_between_two_rungs_is_waited_for() -> None:
    resting = HalvingTrial(0, "paused", step=5)
    assert decided(resting, at(1, 1.0), at(2, 2.0)) == ([], [])
    between = replace(at(0, 1.0), step=12)
    assert (between.rests_at_rung, between.moves) == (False, True)


@given(
    floors=st.lists(st.floats(0, 1) | st.just(math.nan), min_size=1, max_size=30),
    slots=st.integers(1, 5),
    factor=st.integers(2, 5),
    min_steps=st.integers(1, 10),
    failing=st.dictionaries(st.integers(0, 29), st.integers(1, 80), max_size=8),
)
def test_every_sweep_ends_and_costs_no_more_than_the_grid(
    floors: list[float], slots: int, factor: int, min_steps: int, failing: dict[int, int]
) -> None:
    halving = Halving(min_steps=min_steps, factor=factor)
    done = sweep(*floors, slots=slots, halving=halving, failing=failing).run()
    assert set(done.states) <= {"completed", "pruned", "failed"}
    assert done.used <= len(floors) * done.total
    could = [index for index, floor in enumerate(floors) if math.isfinite(floor) and index not in failing]
    assert not could or "completed" in done.states, "one that neither diverges nor fails is there, and comes to the end"
