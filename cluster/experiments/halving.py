"""Successive halving without barriers: ASHA (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", algorithm 2). Pure.

Each trial pauses by itself at every rung (`training.pause_at_steps`), so that all are compared at the same step; a promotion resumes it.
Of the results of a rung the best 1/factor are promoted, as soon as they are among these; nobody waits for a rung to be full. Two things
differ from the paper, whose stream of configurations never ends:

- A rung to which no trial comes any more promotes one at least, so that a trial reaches the end whatever their number.
- A trial that fails gives its place up. So a trial that is not promoted stays paused, and holds no slot, until those that are better have
  ended; then it is pruned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.cluster.experiments.facts import Rung, TrialState
from paceline.cluster.experiments.spec import Halving, Metric

#: States of trials that may reach another rung.
_ALIVE = frozenset({"waiting", "running", "paused"})
#: States of trials that are no part of the comparison: never run, or taken out by a user.
_ABSENT = frozenset({"refused", "cancelled"})


@dataclass(frozen=True)
class HalvingTrial:
    """A trial as the halving sees it. Baselines are none of its trials: they run to the end."""

    index: int
    state: TrialState
    step: int = 0  # the newest committed one
    rungs: tuple[Rung, ...] = ()  # those that it has reached, from the first; `rungs_reached`

    @property
    def rests_at_rung(self) -> bool:
        """Whether the trial waits for a promotion. One that a user paused between two rungs does not: it is still on its way."""
        return self.state == "paused" and bool(self.rungs) and self.step == self.rungs[-1].steps

    @property
    def moves(self) -> bool:
        return self.state in _ALIVE and not self.rests_at_rung

    def key(self, rung: int, metric: Metric) -> tuple[bool, float, int]:
        """The trial's place among the results of a rung: the best is the least. What failed, or is not finite, is worse than all else;
        of equal ones the first in the grid is better."""
        value = self.value(rung)
        if value is None:
            return (True, 0.0, self.index)
        return (False, -value if metric.goal == "maximize" else value, self.index)

    def value(self, rung: int) -> float | None:
        return self.rungs[rung].value if self.state != "failed" and rung < len(self.rungs) else None


@dataclass(frozen=True)
class Promotion:
    index: int
    to_step: int
    why: str


@dataclass(frozen=True)
class Pruning:
    index: int
    why: str


@dataclass(frozen=True)
class HalvingDecision:
    """`promote`: in the order in which slots should be given to them, those of the highest rung first."""

    promote: tuple[Promotion, ...] = ()
    prune: tuple[Pruning, ...] = ()


@dataclass(frozen=True)
class _Standing:
    """What is known of one rung. `most`: promotions from it, if no trial fails from now on; `now`: so far."""

    rung: int
    ranked: tuple[HalvingTrial, ...]  # that have a result here, the best first
    now: int
    most: int


def decide(metric: Metric, halving: Halving, steps: Sequence[int], trials: Sequence[HalvingTrial]) -> HalvingDecision:
    """Return which paused trials go on, and which never will. `steps`: the `ladder`, and then the whole length."""
    standings = list(_standings(metric, halving.factor, len(steps) - 1, [trial for trial in trials if trial.state not in _ABSENT]))
    promote = [
        Promotion(trial.index, steps[each.rung + 1], _promoted(each, place, metric, steps))
        for each in reversed(standings)
        for place, trial in enumerate(each.ranked[: each.now])
        if _waits_at(trial, each.rung) and trial.value(each.rung) is not None
    ]
    return HalvingDecision(tuple(promote), tuple(_prunings(standings, metric, steps)))


def _standings(metric: Metric, factor: int, rungs: int, trials: Sequence[HalvingTrial]) -> Iterator[_Standing]:
    """Yield the standing of each rung, from the first. To a rung may come those that are on their way to it or to one below, and those that
    may still be promoted from one below."""
    hopeful = 0
    for rung in range(rungs):
        results = [trial for trial in trials if _has_result(trial, rung)]
        ranked = tuple(sorted(results, key=lambda trial: trial.key(rung, metric)))
        coming = hopeful + sum(trial.moves and len(trial.rungs) <= rung for trial in trials)
        most = max(1, (len(ranked) + coming) // factor)
        yield _Standing(rung, ranked, len(ranked) // factor if coming else most, most)
        hopeful += sum(_waits_at(trial, rung) and trial.value(rung) is not None for trial in ranked[:most])


def _has_result(trial: HalvingTrial, rung: int) -> bool:
    """Whether the trial counts among the results of a rung: it has reached it, or failed on the way there."""
    return len(trial.rungs) > rung or (trial.state == "failed" and len(trial.rungs) == rung)


def _waits_at(trial: HalvingTrial, rung: int) -> bool:
    return trial.rests_at_rung and len(trial.rungs) == rung + 1


def _prunings(standings: Sequence[_Standing], metric: Metric, steps: Sequence[int]) -> Iterator[Pruning]:
    """Yield the trials that can be promoted no more, those of the highest rung first: where they go, those below them may go too."""
    gone: set[int] = set()
    for each in reversed(standings):
        decided = 0
        for trial in each.ranked:
            value = trial.value(each.rung)
            if _waits_at(trial, each.rung) and (value is None or decided >= each.most):
                gone.add(trial.index)
                yield Pruning(trial.index, _pruned(each, value, metric, steps))
            decided += trial.index in gone or trial.state in ("completed", "pruned")


def _promoted(standing: _Standing, place: int, metric: Metric, steps: Sequence[int]) -> str:
    value = standing.ranked[place].value(standing.rung)
    return (
        f"{metric.name} {value:.6g} at step {steps[standing.rung]} is number {place + 1} of {len(standing.ranked)}, of which {standing.now} "
        f"may go on to step {steps[standing.rung + 1]}"
    )


def _pruned(standing: _Standing, value: float | None, metric: Metric, steps: Sequence[int]) -> str:
    if value is None:
        return f"{metric.name} at step {steps[standing.rung]} is not finite"
    return f"{metric.name} {value:.6g} at step {steps[standing.rung]} is not among the best {standing.most} of {len(standing.ranked)}"
