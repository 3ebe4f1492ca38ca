"""The facts about a job, as the pure policies read them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from paceline.cluster.policy.hangs import HangVerdict
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from paceline.cluster.waiting import waited
from paceline.training.link import FailureReport, Outcome, Stalled
from paceline.training.schema.amounts import written_time
from paceline.training.schema.parallelism import REPLICAS, Parallelism

#: How long an exited rank's last metrics, logs and checkpoint records are waited for before the job moves on without them.
DRAIN_SECONDS = 10.0
#: The same before a job starts again, while the rank's node says that it is behind with its reports: a checkpoint may be among them.
BACKLOG_SECONDS = 30.0
#: How long agents may take to connect again and report, once the coordinator is back.
RECONNECT_SECONDS = 15.0


@dataclass(frozen=True)
class RankView:
    """The facts about one rank of the job's newest generation."""

    rank: int
    state: RankState
    updated_at: datetime
    outcome: Outcome | None = None
    failure: FailureReport | None = None
    drained: bool = False
    started: bool = True  # a process was forked for it
    could_not_begin: bool = False  # its node could not start it, or it could not read its checkpoints there
    process_kept: bool = False  # its process comes from an earlier generation
    newcomer: bool = False  # it was parked until this generation: it has no part in what was trained before
    reachable: bool = True  # its agent is connected
    unheard: bool = False  # nothing was heard of its agent since the coordinator is up
    leaving: bool = False  # its node drains
    suspended: bool = False  # its process is stopped by a signal
    stall: Stalled | None = None  # what it is at for too long
    behind: bool = False  # its node has reports that have not been sent
    up_since: datetime | None = None  # as the job's

    @property
    def stopped(self) -> bool:
        return self.state in (RankState.EXITED, RankState.LOST)

    @property
    def failed(self) -> bool:
        """Whether the rank failed. An exit without a report is a failure too: only a rank's own report makes it anything else. A rank
        that was stopped before it was started has not failed."""
        if self.state is RankState.EXITED:
            return self.started and self.outcome not in ("completed", "paused", "released")
        return self.state is RankState.LOST

    @property
    def broken(self) -> bool:
        """Whether the rank is alive, has lost its peers and waits for a place in the next generation."""
        return not self.stopped and self.failure is not None

    def is_finished(self, now: datetime) -> bool:
        """Whether the rank is stopped, and all it left behind is stored or has been waited for long enough."""
        if self.state is RankState.EXITED:
            return self.drained or self.waited(now) >= timedelta(seconds=DRAIN_SECONDS)
        return self.stopped

    def saves_are_known(self, now: datetime) -> bool:
        """Whether all saves of the rank are known, or have been waited for long enough."""
        waits = self.state is RankState.EXITED and not self.drained and self.behind and self.reachable
        return not waits or self.waited(now) >= timedelta(seconds=BACKLOG_SECONDS)

    def waited(self, now: datetime) -> timedelta:
        """How long another report of the rank has been waited for."""
        return waited(self.updated_at, self.up_since, now)


@dataclass(frozen=True)
class PolicyStop:
    """Why its user's policy ends a job."""

    reason: EndReason
    what: str
    step: int


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
    size_before: int | None = None  # how many members a gang that changes them had before; None: no change is under way
    target: int | None = None  # how many members it should have; None: as many as it has
    silence: HangVerdict | None = None  # why a script that has fallen quiet is to end
    needs_preparation: bool = False  # its nodes get code or packages before they start a process, which may take minutes
    own_pause: int | None = None  # the step after which its ranks have ended because its spec says so
    slow_is_hung: bool = False  # the user has said how long a step may take
    is_elastic: bool = False  # a script that is started again with another world when nodes are lost or come back
    is_script: bool = False  # its ranks are told to end by SIGTERM alone
    stop: PolicyStop | None = None  # by its user's policy, whatever its ranks say
    saves: bool = True  # its ranks save when they are told to end, and can be started again; not those of a script that does not say so
    grace_seconds: float = 0.0  # how long its ranks may take to end once they are told to
    time_limit: float | None = None  # seconds that it may hold slots
    stepless: int = 0  # generations in a row, this one among them, that made no step
    ran_before: float = 0.0  # seconds that the generations before the one under way held slots, less what the clock was set by since
    up_since: datetime | None = None  # the coordinator has been up without a break since then: it could hear no report before

    @property
    def generation_ended(self) -> bool:
        return self.generation_ended_at is not None

    @property
    def size(self) -> int:
        """How many members the job should have."""
        return self.target or len(self.ranks)

    @property
    def exit_description(self) -> str:
        """The actions of its ranks when they are to end, for a sentence."""
        if not self.is_script:
            return "save and exit"
        return f"get SIGTERM, and {written_time(self.grace_seconds)} to save and exit"

    def ran_seconds(self, now: datetime) -> float:
        """How long the job has held slots, over all generations."""
        if self.generation_since is None or self.generation_ended:
            return self.ran_before
        return max(0.0, self.ran_before + (now - self.generation_since).total_seconds())

    def is_finished(self, now: datetime) -> bool:
        return all(rank.is_finished(now) for rank in (*self.ranks, *self.parked))

    def saves_are_known(self, now: datetime) -> bool:
        return all(rank.saves_are_known(now) for rank in self.ranks)

    def all_exited_with(self, outcome: Outcome) -> bool:
        return bool(self.ranks) and all(rank.state is RankState.EXITED and rank.outcome == outcome for rank in self.ranks)

    def in_state_longer_than(self, seconds: float, now: datetime) -> bool:
        return self.waited(self.state_since, now) >= timedelta(seconds=seconds)

    def waited(self, since: datetime, now: datetime) -> timedelta:
        """How long reports of its ranks have been waited for since a moment."""
        return waited(since, self.up_since, now)

    def may_have_joined(self, now: datetime) -> bool:
        """Whether all its ranks may have joined while the coordinator was away, and their agents have had no time to say so."""
        if self.up_since is None or self.generation_since is None or self.generation_ended:
            return False
        return self.generation_since < self.up_since and now - self.up_since < timedelta(seconds=RECONNECT_SECONDS)

    def awaits_agents(self, now: datetime) -> bool:
        """Whether agents of its ranks are away, and have had no time to connect again since the coordinator is back."""
        back = self.up_since
        if back is None or now - back >= timedelta(seconds=RECONNECT_SECONDS):
            return False
        return any(not rank.stopped and rank.unheard for rank in self.ranks)
