"""What a way of choosing trials answers: a grid, a random or learning search, and a halving are asked the same question. Pure.

`schedule` asks a policy which trials it wants next, and holds the answer against what there is room, budget and leave for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from paceline.cluster.experiments.facts import Rung, TrialState
from paceline.cluster.experiments.spec import ExperimentSpec


@dataclass(frozen=True)
class KnownTrial:
    """A trial, as far as choosing goes by it. A `paused` trial has a checkpoint and holds no slots."""

    index: int
    configuration: int  # in the order of the grid, the same for all its repeats
    repeat: int
    values: Mapping[str, Any]
    world_size: int
    state: TrialState
    is_active: bool = False  # its job holds slots, or waits for them: also one that is asked to stop, until it has
    is_queued: bool = False  # of the active ones: waits for slots
    never_fits: str | None = None  # of the queued ones: why the nodes that are here would not hold it if they were empty
    lacks_nodes: bool = False  # its plan is to be chosen for the nodes that are here, and there is none
    can_pause: bool = True
    #: Why the experiment paused its job; None: it did not, so a paused job was paused by hand and is left alone.
    paused_for: str | None = None
    is_pausing: bool = False  # asked to pause, and not paused yet
    is_cancelling: bool = False
    step: int = 0
    has_final_metric: bool = False  # its job rests, and `metric` is of the last step before
    is_awaited: bool = False  # its job rests, and the last of its points are still to come
    rungs: Sequence[Rung] = ()
    metric: float | None = None  # at its last step

    @property
    def rests_at_rung(self) -> bool:
        return self.state == "paused" and bool(self.rungs) and self.step == self.rungs[-1].steps

    @property
    def is_paused_by_hand(self) -> bool:
        """Whether somebody else than the experiment paused its job: it stays so until somebody resumes it."""
        return self.state == "paused" and self.paused_for is None and not self.rests_at_rung


@dataclass(frozen=True)
class Pause:
    """A trial that is to rest at a rung. `rung`: what is noted of it there."""

    trial: int
    why: str
    rung: Rung | None = None


@dataclass(frozen=True)
class Prune:
    """A trial that is given up: its job is cancelled, and it counts as pruned."""

    trial: int
    why: str


@dataclass(frozen=True)
class Wishes:
    """The next trials that a policy wants.

    `order`: trials to start or to resume, the first ones first; one that waits or rests at a rung and is not named stays as it is. `proposals`: values of
    new trials, which are then asked about like any other. `is_exhausted`: no trial will be proposed any more, and of those that wait or rest none
    but the named ones will be wanted, whatever the active ones bring."""

    order: Sequence[int] = ()
    pauses: Sequence[Pause] = ()
    prunes: Sequence[Prune] = ()
    proposals: Sequence[Mapping[str, Any]] = ()
    is_exhausted: bool = True
    #: What trials have come to since they were looked at last.
    new_rungs: Mapping[int, Rung] = field(default_factory=dict)
    #: Why resumed trials go on, by trial.
    reasons: Mapping[int, str] = field(default_factory=dict)


class Policy(Protocol):
    def wishes(self, spec: ExperimentSpec, trials: Sequence[KnownTrial], most_new: int) -> Wishes:
        """Return what is wanted. `most_new`: for how many new trials there may be room now; proposing more is of no use."""
        ...


class GridPolicy:
    """Runs every trial once, the repeats interleaved."""

    def wishes(self, spec: ExperimentSpec, trials: Sequence[KnownTrial], most_new: int) -> Wishes:
        return Wishes(order=interleaved([trial for trial in trials if trial.state == "waiting"]))


def trials_left(spec: ExperimentSpec, trials: Sequence[KnownTrial]) -> int:
    """Return how many more trials the budget lets begin. A trial that no node would hold has not begun: it trains nothing, and its place is free."""
    begun = sum(trial.state not in ("refused", "waiting") and trial.never_fits is None for trial in trials)
    return len(trials) + 1_000_000 if spec.budget.trials is None else max(0, spec.budget.trials - begun)


def interleaved(trials: Sequence[KnownTrial]) -> list[int]:
    """Return the indices round by round: repeat r of every configuration before repeat r + 1 of any. Every second round goes backwards, so that
    over two rounds all configurations have the same mean place, and a machine that gets slower or faster favours none of them."""

    def place(trial: KnownTrial) -> tuple[int, int]:
        return trial.repeat, -trial.configuration if trial.repeat % 2 else trial.configuration

    return [trial.index for trial in sorted(trials, key=place)]
