"""A rank without a process, as its agent reports it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.cluster.protocol import ObservedRank
from paceline.cluster.stacks import StackSample
from paceline.cluster.states import RankState
from paceline.training.link import FailureReport, Outcome, RankPlace, Stalled


@dataclass
class SimulatedRank:
    world: RankPlace
    pid: int | None  # None: no process could be started
    state: RankState = RankState.RUNNING
    step: int = 0
    total_steps: int | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    signal: str | None = None
    failure: FailureReport | None = None
    stall: Stalled | None = None
    suspended: bool = False
    quiet_since: float | None = None
    stacks: StackSample | None = None
    events: int = 0
    records: int = 0

    def observed(self, *, drained: bool = True) -> ObservedRank:
        exited = self.state is RankState.EXITED
        return ObservedRank(
            rank=self.world.rank,
            slot=self.world.slot,
            state=self.state,
            pid=self.pid,
            step=self.step,
            total_steps=self.total_steps,
            progress_age=0.0,
            outcome=self.outcome,
            exit_code=self.exit_code,
            signal=self.signal,
            failure=self.failure,
            stall=self.stall,
            suspended=self.suspended,
            drained=exited and drained,
            quiet_since=self.quiet_since,
            stacks=self.stacks,
        )
