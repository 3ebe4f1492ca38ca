"""What is known of a job, as the pure policies look at it, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cluster.states import EndReason, Intent, JobState, RankState
from training.link import FailureReport, Outcome, Stalled
from training.spec.strategy import REPLICAS, Parallelism

#: How long an exited rank's last metrics, logs and checkpoint records are waited for before the job moves on without them.
DRAIN_SECONDS = 10.0
#: The same before a job starts again, while the rank's node says that it is behind with its reports: a checkpoint may be among them.
BACKLOG_SECONDS = 30.0
#: Stops that leave the ranks up: they save at an agreed step, and exit by themselves.
SAVING = frozenset({EndReason.PAUSED, EndReason.PREEMPTED, EndReason.RESIZED})


@dataclass(frozen=True)
class RankView:
    """What is known of one rank of the job's newest generation."""

    rank: int
    state: RankState
    updated_at: datetime
    outcome: Outcome | None = None
    failure: FailureReport | None = None
    drained: bool = False
    started: bool = True  # a process was forked for it
    carried: bool = False  # its process comes from an earlier generation
    newcomer: bool = False  # it was parked until this generation: it has no part in what was trained before
    reachable: bool = True  # its agent is connected
    leaving: bool = False  # its node drains
    suspended: bool = False  # its process is stopped by a signal
    stall: Stalled | None = None  # what it is at for too long
    behind: bool = False  # its node has reports that have not been sent

    @property
    def stopped(self) -> bool:
        return self.state in (RankState.EXITED, RankState.LOST)

    @property
    def failed(self) -> bool:
        """An exit that nobody explained is a failure too: only a rank's own word makes it anything else. One that was
        stopped before it was started has not failed."""
        if self.state is RankState.EXITED:
            return self.started and self.outcome not in ("completed", "paused", "released")
        return self.state is RankState.LOST

    @property
    def broken(self) -> bool:
        """Alive, but it has lost its peers and waits for a place in the next generation."""
        return not self.stopped and self.failure is not None

    def settled(self, now: datetime) -> bool:
        """Stopped, and everything it left behind is stored or has been waited for long enough."""
        if self.state is RankState.EXITED:
            return self.drained or now - self.updated_at >= timedelta(seconds=DRAIN_SECONDS)
        return self.stopped

    def told(self, now: datetime) -> bool:
        """Whether whatever it saved is known, or has been waited for long enough."""
        waits = self.state is RankState.EXITED and not self.drained and self.behind and self.reachable
        return not waits or now - self.updated_at >= timedelta(seconds=BACKLOG_SECONDS)


@dataclass(frozen=True)
class JobView:
    state: JobState
    desired: Intent
    end_reason: EndReason | None
    state_since: datetime
    generation: int
    generation_since: datetime | None  # when it was placed
    generation_ended_at: datetime | None  # since then its ranks are to stop: the job stops, or a newer generation follows
    restarts: int
    max_restarts: int
    ranks: tuple[RankView, ...] = ()  # the members of `generation`
    parked: tuple[RankView, ...] = ()  # its ranks without a place: no part of what it does, but they hold slots
    min_ranks: int | None = None  # the fewest survivors that go on by themselves; None: the job does not close up
    plan: Parallelism = REPLICAS  # how its world is cut: which sizes it may have, and which rank holds what
    target: int | None = None  # how many members it should have; None: as many as it has
    slow_is_hung: bool = False  # the user has said how long a step may take
    is_script: bool = False  # its ranks are told to end by SIGTERM alone
    saves: bool = True  # its ranks save when they are told to end; not those of a script that does not say so
    grace_seconds: float = 0.0  # how long its ranks may take to end once they are told to

    @property
    def generation_ended(self) -> bool:
        return self.generation_ended_at is not None

    @property
    def size(self) -> int:
        """How many members it should have."""
        return self.target or len(self.ranks)

    def settled(self, now: datetime) -> bool:
        return all(rank.settled(now) for rank in (*self.ranks, *self.parked))

    def told(self, now: datetime) -> bool:
        return all(rank.told(now) for rank in self.ranks)

    def all_exited_with(self, outcome: Outcome) -> bool:
        return bool(self.ranks) and all(rank.state is RankState.EXITED and rank.outcome == outcome for rank in self.ranks)

    def in_state_longer_than(self, seconds: float, now: datetime) -> bool:
        return now - self.state_since >= timedelta(seconds=seconds)


@dataclass(frozen=True)
class Decision:
    """The next state. `to` may be the present one: then only the reason changes, or the present generation ends.

    `survivors`, `joining`, then `replaced` are the next generation, in this order: ranks whose processes live on, parked ones that take a
    place beside them, and ended ones whose places go to new processes. `at_boundary`: after a step that the present generation agrees
    on, since nothing is wrong with it.
    """

    to: JobState
    reason: EndReason | None
    why: str
    counts_as_restart: bool = False
    stops_ranks: bool = False
    survivors: tuple[int, ...] = ()
    joining: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    parking: tuple[int, ...] = ()  # ranks whose processes live on without a place
    falls_back: bool = False  # a part of the state is lost: its living processes go back to the newest checkpoint
    culprits: tuple[int, ...] = ()  # ranks that are to blame though they have not failed
    at_boundary: bool = False

    @property
    def as_restart(self) -> Decision:
        """The same with new processes only."""
        return replace(self, survivors=(), joining=(), replaced=(), parking=(), falls_back=False, counts_as_restart=True)

    @property
    def ends_generation(self) -> bool:
        """Whether its ranks are to stop from now on."""
        return self.stops_ranks or self.counts_as_restart or (self.to is JobState.STOPPING and self.reason not in SAVING)


def listed(ranks: Sequence[RankView]) -> str:
    """For a sentence: "0, 3"."""
    return ", ".join(str(rank.rank) for rank in ranks)
