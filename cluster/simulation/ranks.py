"""A simulated rank: a process that only exists on paper, and the places that it takes in the generations of its job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paceline.cluster.agent.ranks.rank_link import Said
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.ranks.ranks import ExitCause, RankPhase
from paceline.cluster.protocol import RankKey
from paceline.cluster.simulation.outbox import RankOutbox
from paceline.parallelism.plan import StateShard
from paceline.training.link import FailureReport, Outcome, RankHello, RankPlace

if TYPE_CHECKING:
    from paceline.cluster.simulation.gang import Gang


@dataclass(eq=False)
class SimulatedProcess:
    """The stand-in for a process that a real node would have forked. It keeps its state, the committed `step`, from place to place; None: it has none yet."""

    pid: int
    node: str
    slot: int
    place: SimulatedRank | None = None  # the newest that it was given
    gang: Gang | None = None  # whose member it is
    step: int | None = None
    part: StateShard = ()  # of the state, that it holds along with `step`
    ended: bool = False


@dataclass(eq=False)
class SimulatedRank:
    """One place of a process: a rank of one generation, as its agent's table knows it."""

    key: RankKey
    world: RankPlace
    process: SimulatedProcess
    outbox: RankOutbox
    table: RankTable
    changed: Callable[[], None]
    releasing: bool = field(default=False)

    @property
    def is_recording(self) -> bool:
        """Whether steps are still recorded in this place: a process with a newer one leaves it after the step that its gang is at."""
        gang = self.process.gang
        return gang is not None and gang.members.get(self.key.rank) is self

    def say(self, message: Said) -> None:
        """Tell the agent something, as a real rank does over its socket."""
        if self.table.on_message(self.key, message, time.monotonic()):
            self.changed()

    def enter(self) -> None:
        """Say that the process is in this place now."""
        process = self.world.process
        self.say(RankHello(job_id=self.key.job_id, generation=self.key.generation, rank=self.key.rank, pid=self.process.pid, birth=process))

    def suspend(self) -> None:
        """Stop the process by a signal: it is there, and does nothing."""
        self.table.change(self.key, suspended=True)
        self.changed()

    def end(
        self, outcome: Outcome, *, exit_code: int | None = None, signal: str | None = None, failure: FailureReport | None = None
    ) -> None:
        """End the process. It ends in the newest place that it was given, wherever it was. Harmless the second time."""
        newest = self.process.place
        if self.process.ended or newest is None:
            return
        self.process.ended, self.process.gang = True, None
        step = self.process.step or 0
        cause = ExitCause(outcome=outcome, exit_code=exit_code, signal=signal, step=step, time=time.time(), failure=failure)
        self.table.change(newest.key, phase=RankPhase.EXITED, ending=cause)
        self.changed()

    def kill(self, *, ordered: bool = False, signal: str = "SIGKILL") -> None:
        """End the process by a signal. `ordered`: its agent was told to."""
        failure = FailureReport(
            kind="signal",
            rank=self.key.rank,
            message=f"killed by {signal} (simulated)",
            step=self.process.step or 0,
            time=time.time(),
            signal=signal,
            ordered=ordered,
        )
        self.end("failed", signal=signal, failure=failure)
