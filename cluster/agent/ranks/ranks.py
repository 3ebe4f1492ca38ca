"""An agent's knowledge of each rank it was given, and how that reads in an `Observed` report. Frozen; no I/O."""

from __future__ import annotations

import enum

import msgspec

from paceline.cluster.protocol import ObservedRank, RankKey
from paceline.cluster.stacks import StackSample
from paceline.cluster.states import RankState
from paceline.training.link import FailureReport, Outcome, RankOrder, Stalled


class ExitCause(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank ended. Exit code and signal come from waitpid alone."""

    outcome: Outcome
    exit_code: int | None = None
    signal: str | None = None
    step: int = 0
    time: float = 0.0  # wall clock
    failure: FailureReport | None = None


class RankPhase(enum.Enum):
    PREPARING = enum.auto()  # not yet handed to the spawner
    ALIVE = enum.auto()  # handed to the spawner, not yet known to have exited
    EXITED = enum.auto()
    MOVED = enum.auto()  # its process goes by another key now; what it left here is still to be sent


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    order: RankOrder
    phase: RankPhase = RankPhase.PREPARING
    pid: int | None = None
    joined: bool = False
    parked: bool = False  # built, and waiting for a place
    stopping: bool = False
    entered: bool = True  # False until a process that comes from another generation says that it is here
    broken: FailureReport | None = None  # why a living process has left its group and waits for its next place
    stall: Stalled | None = None  # what it is at for too long, in its own words
    suspended: bool = False  # its process is stopped by a signal
    step: int = 0
    total_steps: int | None = None
    last_news: float | None = None  # monotonic
    ending: ExitCause | None = None
    drained: bool = False
    quiet_since: float | None = None  # wall clock: no output and no step of a script since then, for its patience
    stacks: StackSample | None = None  # as asked for

    @property
    def key(self) -> RankKey:
        return RankKey.of(self.order.world)

    @property
    def process(self) -> RankKey:
        return RankKey.of_process(self.order.world)

    @property
    def is_script(self) -> bool:
        return self.order.spec.is_script

    @property
    def state(self) -> RankState:
        if self.phase is RankPhase.MOVED:
            return RankState.MOVED
        if self.ending is not None:
            return RankState.EXITED
        if self.stopping:
            return RankState.STOPPING
        # A script does not say when it has joined: it runs once its process does.
        if self.joined or (self.is_script and self.pid is not None):
            return RankState.RUNNING
        if self.parked:
            return RankState.PARKED
        if self.phase is RankPhase.PREPARING and self.order.spec.needs_preparation:
            return RankState.ASSIGNED  # packages, and much code over a slow network, take minutes, and no process is late
        return RankState.STARTING if self.entered else RankState.ASSIGNED

    def observed(self, now: float) -> ObservedRank:
        """The rank as it is reported. `now` is monotonic."""
        ending = self.ending
        return ObservedRank(
            rank=self.order.world.rank,
            slot=self.order.world.slot,
            state=self.state,
            pid=self.pid,
            step=max(self.step, ending.step if ending else 0),
            total_steps=self.total_steps,
            progress_age=None if self.last_news is None else max(0.0, now - self.last_news),
            outcome=ending.outcome if ending else None,
            exit_code=ending.exit_code if ending else None,
            signal=ending.signal if ending else None,
            failure=ending.failure if ending else self.broken,
            stall=None if ending else self.stall,
            suspended=self.suspended and ending is None,
            drained=self.drained,
            quiet_since=None if ending else self.quiet_since,
            stacks=None if ending else self.stacks,
        )
