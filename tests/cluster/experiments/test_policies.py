"""Whole experiments on made-up learning curves, through the schedule and the policies: grids, halvings, searches, budgets, and a stop in the middle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paceline.cluster.experiments.facts import Rung
from paceline.cluster.experiments.grid import expand
from paceline.cluster.experiments.policies import HalvingPolicy, SearchPolicy, new_rung, past_of, policy_of
from paceline.cluster.experiments.policy import GridPolicy, KnownTrial
from paceline.cluster.experiments.schedule import Decision, Usage, decide
from paceline.cluster.experiments.search import PastTrial
from paceline.cluster.experiments.spec import ExperimentSpec

TOTAL = 81
JOB = {"model": {"kind": "mlp"}, "data": {"kind": "digits"}, "optimizer": {"kind": "sgd"}, "training": {"steps": TOTAL}}
LRS = [10.0**exponent for exponent in range(-6, 3)]
BEST = LRS.index(1e-2)


def spec_of(**changes: Any) -> ExperimentSpec:
    given = {"name": "lr", "job": JOB, "grid": {"optimizer.lr": LRS}, "halving": {"min_steps": 9, "factor": 3}} | changes
    return ExperimentSpec.model_validate(given)


def loss(lr: float, step: int) -> float:
    """Best at 0.01; over 1 it diverges."""
    return math.nan if lr > 1 else abs(math.log10(lr) + 2) + 1 / step


@dataclass
class Lab:
    """What the coordinator does of an experiment, without one: trials run a step of time at a time, on so many slots."""

    spec: ExperimentSpec
    slots: int = 2
    curve: Callable[[float, int], float] = loss
    state: Any = "running"
    why: str = ""
    used: int = 0
    trials: list[KnownTrial] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trials = [
            KnownTrial(cell.index, cell.index // self.spec.repeats, cell.repeat, cell.values, cell.world_size, "waiting")
            for cell in expand(self.spec).cells
        ]
        self.stops = [9, 27, TOTAL] if self.spec.halving else [TOTAL]

    @property
    def running(self) -> list[KnownTrial]:
        return [trial for trial in self.trials if trial.is_active and not trial.is_queued]

    @property
    def states(self) -> list[str]:
        return [trial.state for trial in self.trials]

    def run(self, turns: int = 2000) -> Lab:
        for _ in range(turns):
            if not self.turn():
                return self
            self.tick()
        return self

    def turn(self) -> bool:
        """Carry out decisions until there are none. Returns whether the experiment goes on."""
        for _ in range(200):
            usage = Usage(self.slots - len(self.running), slot_seconds=self.used)
            decision = decide(self.spec, self.state, self.trials, usage, policy_of(self.spec))
            if not (decision.actions or decision.proposals or decision.new_rungs or decision.becomes):
                return not decision.is_settled
            self.carry_out(decision)
        raise AssertionError("the decisions do not come to an end")

    def carry_out(self, decision: Decision) -> None:
        for index, rung in (decision.new_rungs or {}).items():
            self.change(index, rungs=[*self.trials[index].rungs, rung])
        for action in decision.actions:
            self.reasons.append(action.why)
            if action.kind in ("start", "resume"):
                why = "needs more slots than there are" if self.trials[action.trial].world_size > self.slots else None
                self.change(
                    action.trial, state="running", is_active=True, is_queued=True, never_fits=why, has_final_metric=False, paused_for=None
                )
            elif action.kind == "pause":
                self.change(action.trial, state="paused", is_active=False, is_queued=False, has_final_metric=True, paused_for="budget")
            else:
                ends: dict[str, Any] = {"prune": "pruned", "refuse": "refused"}
                self.change(action.trial, state=ends.get(action.kind, "cancelled"), is_active=False, never_fits=None)
        for values in decision.proposals:
            number = len(self.trials)
            self.trials.append(KnownTrial(number, number, 0, values, 1, "waiting"))
        self.state, self.why = decision.becomes or self.state, decision.why or self.why

    def tick(self) -> None:
        """One step of all that have slots."""
        for trial in [each for each in self.trials if each.is_queued and not each.never_fits][: self.slots - len(self.running)]:
            self.change(trial.index, is_queued=False)
        for trial in self.running:
            self.used += 1
            step = trial.step + 1
            value = self.curve(trial.values["optimizer.lr"], step)
            self.change(trial.index, step=step, metric=value if math.isfinite(value) else None)
            if step in self.stops:
                self.change(trial.index, state="completed" if step == TOTAL else "paused", is_active=False, has_final_metric=True)

    def change(self, index: int, **values: Any) -> None:
        self.trials[index] = replace(self.trials[index], **values)


def test_a_halved_grid_finds_the_best_at_a_quarter_of_the_cost() -> None:
    halved, whole = Lab(spec_of()).run(), Lab(spec_of(halving=None)).run()
    assert (halved.state, whole.state, halved.why) == ("completed", "completed", "every trial has ended")
    assert halved.states == ["completed" if index == BEST else "pruned" for index in range(9)]
    assert set(whole.states) == {"completed"}
    assert min(range(7), key=lambda index: whole.trials[index].metric or 0.0) == BEST, "0 to 6: the others diverge"
    assert halved.used / whole.used < 0.27
    assert [rung.steps for rung in halved.trials[BEST].rungs] == [9, 27, 81]
    assert "loss 0.037037 at step 27 is number 1 of 3, of which 1 may go on to step 81" in halved.reasons


def test_those_that_wait_start_before_others_are_promoted_unless_the_budget_may_end_it() -> None:
    plain, limited = Lab(spec_of(), slots=1), Lab(spec_of(budget={"slot_hours": 1}), slots=1)
    plain.run(turns=9 * 9)
    limited.run(turns=9 * 9)
    assert sum(len(trial.rungs) for trial in plain.trials) >= 8, "every trial has had its turn"
    assert "waiting" not in plain.states
    assert "waiting" in limited.states
    assert max(trial.step for trial in limited.trials) > 9


def test_a_used_up_budget_stops_and_a_larger_one_goes_on_to_the_same_end() -> None:
    stopped = Lab(spec_of(budget={"slot_hours": 100 / 3600})).run()
    assert stopped.state == "stopped"
    assert "running" not in stopped.states
    assert stopped.used <= 102
    larger = Lab(spec_of(budget={"slot_hours": 1}))
    larger.trials, larger.used = stopped.trials, stopped.used
    larger.run()
    assert (larger.state, larger.trials[BEST].state) == ("completed", "completed")
    assert larger.used == sum(trial.step for trial in larger.trials), "no step was done twice"


def test_a_budget_of_trials_halves_those_that_it_lets_begin() -> None:
    lab = Lab(spec_of(budget={"trials": 6})).run()
    assert (lab.state, lab.why) == ("stopped", "budget.trials=6 trials have run")
    assert (lab.states.count("completed"), lab.states.count("pruned"), lab.states.count("waiting")) == (1, 5, 3)


@pytest.mark.parametrize("lrs", [[0.1, 0.01], [0.1, 0.01, 0.001, 0.02, 0.05]])
def test_trials_that_no_node_would_hold_do_not_stop_a_halving(lrs: list[float]) -> None:
    lab = Lab(spec_of(grid={"optimizer.lr": lrs}, world_sizes=[1, 16])).run()
    assert lab.state == "completed", "their results were waited for"
    assert [trial.state for trial in lab.trials if trial.world_size == 16] == ["refused"] * len(lrs)
    assert [trial.values["optimizer.lr"] for trial in lab.trials if trial.state == "completed"] == [0.01]


def test_no_trial_is_pruned_while_the_place_of_one_that_fits_no_node_lets_another_begin() -> None:
    def resting(index: int) -> KnownTrial:
        return KnownTrial(
            index, index, 0, {}, 1, "paused", step=9, has_final_metric=True, rungs=[Rung(9, float(index))], metric=float(index)
        )

    trials = [replace(resting(0), state="completed", step=TOTAL, rungs=[Rung(step, 0.0) for step in (9, 27, TOTAL)])]
    trials += [resting(index) for index in range(1, 5)]
    trials.append(KnownTrial(5, 5, 0, {}, 8, "running", is_active=True, is_queued=True, never_fits="needs 8 slots"))
    trials.append(KnownTrial(6, 6, 0, {}, 1, "waiting"))
    spec = spec_of(grid={"optimizer.lr": LRS[:7]}, budget={"trials": 6})
    actions = decide(spec, "running", trials, Usage(4), policy_of(spec)).actions
    assert [(action.kind, action.trial) for action in actions if action.kind != "refuse"] == [("start", 6)], "of six, two may go on"


def test_a_trial_that_passed_its_rung_is_noted_there_all_the_same() -> None:
    passed = KnownTrial(0, 0, 0, {}, 1, "running", is_active=True, step=12, metric=0.5)
    assert new_rung(passed, (9, 27, 81)) == Rung(9, 0.5)
    assert new_rung(replace(passed, step=9), (9, 27, 81)) is None, "it may be about to pause"
    assert new_rung(replace(passed, step=9, state="paused"), (9, 27, 81)) is None, "its last points are not read yet"
    assert new_rung(replace(passed, step=9, state="paused", has_final_metric=True, metric=None), (9, 27, 81)) == Rung(9, None)
    assert new_rung(replace(passed, state="failed"), (9, 27, 81)) is None


# --- searches


def search_of(trials: int, kind: str = "tpe", **changes: Any) -> ExperimentSpec:
    parameters = {"optimizer.lr": {"low": 1e-6, "high": 100, "scale": "log"}}
    return spec_of(grid={}, search={"kind": kind, "trials": trials, "parameters": parameters}, **changes)


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_a_search_draws_its_trials_one_behind_the_other_and_ends(kind: str) -> None:
    lab = Lab(search_of(12, kind, halving=None)).run()
    assert (lab.state, lab.states) == ("completed", ["completed"] * 12)
    assert len({trial.values["optimizer.lr"] for trial in lab.trials}) == 12


def test_a_search_is_halved_as_a_grid_is_and_goes_on_the_same_after_a_death() -> None:
    lab = Lab(search_of(18)).run()
    assert lab.state == "completed"
    assert lab.states.count("completed") >= 1
    assert lab.used < 0.5 * 18 * TOTAL
    half = Lab(search_of(18)).run(turns=60)
    heir = Lab(search_of(18))
    heir.trials, heir.used = half.trials, half.used
    heir.run()
    assert [trial.values for trial in heir.trials] == [trial.values for trial in lab.trials]
    assert heir.states == lab.states


def trial(state: Any, metric: float | None = None, *rungs: Rung, repeat: int = 0) -> KnownTrial:
    return KnownTrial(repeat, 0, repeat, {"a": 1}, 1, state, metric=metric, rungs=rungs)


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [
        ([trial("completed", 1.0), trial("completed", 3.0), trial("completed", 9.0)], PastTrial({"a": 1}, "completed", 3.0)),
        ([trial("completed", 1.0), trial("completed", None)], PastTrial({"a": 1}, "completed", None)),
        ([trial("completed", 1.0), trial("failed")], PastTrial({"a": 1}, "completed", 1.0)),
        ([trial("paused", 5.0, Rung(9, 4.0)), trial("pruned", 5.0, Rung(9, 6.0))], PastTrial({"a": 1}, "stopped_early", 5.0, 9)),
        (
            [trial("running", 1.0, Rung(9, 4.0), Rung(27, 2.0)), trial("pruned", 5.0, Rung(9, 6.0))],
            PastTrial({"a": 1}, "stopped_early", 2.0, 27),
        ),
        ([trial("failed", 5.0, Rung(9, 4.0))], PastTrial({"a": 1}, "failed")),
        ([trial("refused"), trial("failed")], PastTrial({"a": 1}, "failed")),
        ([trial("running", 4.0), trial("failed")], PastTrial({"a": 1}, "running")),
        ([replace(trial("completed", 4.0), is_awaited=True), trial("completed", 1.0)], PastTrial({"a": 1}, "running")),
        ([trial("waiting")], PastTrial({"a": 1}, "running")),
        ([trial("cancelled")], PastTrial({"a": 1}, "left_out")),
    ],
)
def test_a_configuration_as_a_search_learns_from_it(repeats: list[KnownTrial], expected: PastTrial) -> None:
    assert past_of(repeats) == expected


def test_the_spec_says_which_policy_chooses() -> None:
    assert isinstance(policy_of(spec_of(halving=None)), GridPolicy)
    assert policy_of(search_of(3)) == HalvingPolicy(SearchPolicy())
