"""The life cycle of a job as one pure decision: from what is known of it to the next state, with the reason.

`decide` never waits and never places: a job that needs slots says so through `wants_slots`, and the scheduler answers with
a new generation. A generation that has *ended* only has ranks that are being stopped; nothing it says moves the job on.

Deadlines, by state (in each the job leaves by itself or by the rule named here):
    queued      none: a job may wait for slots for ever, and `pending` says what is missing
    starting    START_SECONDS until every rank has joined, then a restart
    running     none: a step may take as long as it takes; a dead rank or a lost node ends it
    recovering  STOP_SECONDS until the old ranks are gone; then none while waiting for slots; then START_SECONDS
    stopping    PAUSE_SECONDS for a save, then the ranks are killed; STOP_SECONDS for everything else
    paused      none: it is the user's turn
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from cluster.failures import end_reason_of, is_victim, root_cause
from cluster.states import EndReason, Intent, JobState, RankState
from training.link import FailureReport

START_SECONDS = 120.0
PAUSE_SECONDS = 120.0
STOP_SECONDS = 60.0
#: How long an exited rank's last metrics, logs and checkpoint records are waited for before the job moves on without them.
DRAIN_SECONDS = 10.0

RankOutcome = Literal["completed", "paused", "failed"]


@dataclass(frozen=True)
class RankView:
    """What is known of one rank of the job's newest generation."""

    rank: int
    state: RankState
    updated_at: datetime
    outcome: RankOutcome | None = None
    failure: FailureReport | None = None
    drained: bool = False
    started: bool = True  # a process was forked for it

    @property
    def stopped(self) -> bool:
        return self.state in (RankState.EXITED, RankState.LOST)

    @property
    def failed(self) -> bool:
        """An exit that nobody explained is a failure too: only a rank's own word makes it anything else. One that was
        stopped before it was started has not failed."""
        if self.state is RankState.EXITED:
            return self.started and self.outcome not in ("completed", "paused")
        return self.state is RankState.LOST

    def settled(self, now: datetime) -> bool:
        """Stopped, and everything it left behind is stored or has been waited for long enough."""
        if self.state is RankState.EXITED:
            return self.drained or now - self.updated_at >= timedelta(seconds=DRAIN_SECONDS)
        return self.stopped


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
    ranks: tuple[RankView, ...] = ()  # of `generation`

    @property
    def generation_ended(self) -> bool:
        return self.generation_ended_at is not None

    def settled(self, now: datetime) -> bool:
        return all(rank.settled(now) for rank in self.ranks)

    def all_exited_with(self, outcome: RankOutcome) -> bool:
        return bool(self.ranks) and all(rank.state is RankState.EXITED and rank.outcome == outcome for rank in self.ranks)

    def in_state_longer_than(self, seconds: float, now: datetime) -> bool:
        return now - self.state_since >= timedelta(seconds=seconds)


@dataclass(frozen=True)
class Decision:
    """The next state. `to` may be the present one: then only the reason changes, or the present generation ends."""

    to: JobState
    reason: EndReason | None
    why: str
    counts_as_restart: bool = False
    stops_ranks: bool = False

    @property
    def ends_generation(self) -> bool:
        """Whether its ranks are to stop from now on. A pause may leave them up: they save, and exit by themselves."""
        return self.stops_ranks or self.counts_as_restart or (self.to is JobState.STOPPING and self.reason is not EndReason.PAUSED)


def decide(view: JobView, now: datetime) -> Decision | None:
    """What should happen to the job next; None: nothing yet."""
    rule = _RULES.get(view.state)
    return rule(view, now) if rule else None


def wants_slots(view: JobView, now: datetime) -> bool:
    """Whether a new generation of the job may be placed now."""
    if view.desired is not Intent.RUN:
        return False
    if view.state is JobState.QUEUED:
        return True
    return view.state is JobState.RECOVERING and view.generation_ended and view.settled(now)


def _queued(view: JobView, now: datetime) -> Decision | None:
    if view.desired is Intent.CANCEL:
        return Decision(JobState.CANCELLED, EndReason.CANCELLED, "cancelled before it was placed")
    if view.desired is Intent.PAUSE:
        return Decision(JobState.PAUSED, EndReason.PAUSED, "paused before it was placed")
    return None


def _starting(view: JobView, now: datetime) -> Decision | None:
    return _obey_cancel(view) or _finished(view) or _failed(view) or _joined(view) or _pause_unjoined(view) or _start_overdue(view, now)


def _running(view: JobView, now: datetime) -> Decision | None:
    return _obey_cancel(view) or _finished(view) or _failed(view) or _obey_pause(view)


def _recovering(view: JobView, now: datetime) -> Decision | None:
    if not view.generation_ended:
        return _starting(view, now)
    return _obey_cancel(view) or _obey_pause(view) or _hopeless(view, now) or _old_ranks_overdue(view, now)


def _stopping(view: JobView, now: datetime) -> Decision | None:
    if view.desired is Intent.CANCEL and view.end_reason in (EndReason.PAUSED, EndReason.PREEMPTED):
        return Decision(JobState.STOPPING, EndReason.CANCELLED, "cancelled while it was being paused")
    if view.end_reason is EndReason.PAUSED and not view.generation_ended:
        return _saving(view, now)
    if view.settled(now):
        return _conclude(view, "all its ranks are gone")
    if view.in_state_longer_than(STOP_SECONDS, now):
        alive = sum(not rank.stopped for rank in view.ranks)
        return _conclude(
            view,
            f"{alive} of {len(view.ranks)} ranks did not confirm their end within {STOP_SECONDS:.0f} s; their slots stay taken until they do",
        )
    return None


def _paused(view: JobView, now: datetime) -> Decision | None:
    if view.desired is Intent.CANCEL:
        return Decision(JobState.CANCELLED, EndReason.CANCELLED, "cancelled while paused")
    if view.desired is Intent.RUN:
        return Decision(JobState.QUEUED, None, "resumed")
    return None


_RULES: Mapping[JobState, Callable[[JobView, datetime], Decision | None]] = {
    JobState.QUEUED: _queued,
    JobState.STARTING: _starting,
    JobState.RUNNING: _running,
    JobState.RECOVERING: _recovering,
    JobState.STOPPING: _stopping,
    JobState.PAUSED: _paused,
}


def _obey_cancel(view: JobView) -> Decision | None:
    if view.desired is Intent.CANCEL:
        return Decision(JobState.STOPPING, EndReason.CANCELLED, "cancelled by its user")
    return None


def _obey_pause(view: JobView) -> Decision | None:
    if view.desired is Intent.PAUSE:
        return Decision(JobState.STOPPING, EndReason.PAUSED, "paused by its user: its ranks save and exit")
    return None


def _pause_unjoined(view: JobView) -> Decision | None:
    """Before every rank has joined no step is taken: there is nothing to save, and the ranks may wait for one that never comes."""
    if view.desired is Intent.PAUSE:
        return Decision(JobState.STOPPING, EndReason.PAUSED, "paused by its user before its first step", stops_ranks=True)
    return None


def _joined(view: JobView) -> Decision | None:
    if view.ranks and all(rank.state is RankState.RUNNING for rank in view.ranks):
        return Decision(JobState.RUNNING, None, f"all {len(view.ranks)} ranks of generation {view.generation} have joined")
    return None


def _finished(view: JobView) -> Decision | None:
    if view.all_exited_with("completed"):
        return Decision(JobState.STOPPING, EndReason.COMPLETED, f"all {len(view.ranks)} ranks have completed")
    if view.ranks and all(rank.state is RankState.EXITED and not rank.failed for rank in view.ranks):
        return Decision(JobState.STOPPING, EndReason.PAUSED, "its ranks have saved and exited")
    return None


def _failed(view: JobView) -> Decision | None:
    failed = [rank for rank in view.ranks if rank.failed]
    if not failed:
        return None
    reason, what = _diagnose(view)
    return _restart_or_give_up(view, reason, what)


def _diagnose(view: JobView) -> tuple[EndReason, str]:
    culprit, _ = root_cause([rank.failure for rank in view.ranks if rank.failed and rank.failure])
    lost = [rank.rank for rank in view.ranks if rank.state is RankState.LOST]
    if lost and (culprit is None or is_victim(culprit)):
        return EndReason.NODE_LOST, f"the node of rank {', '.join(map(str, lost))} is lost"
    if culprit is None:
        exited = next(rank.rank for rank in view.ranks if rank.failed)
        return EndReason.RANK_CRASHED, f"rank {exited} exited without a report"
    return end_reason_of(culprit), f"rank {culprit.rank}: {culprit.message}"


def _restart_or_give_up(view: JobView, reason: EndReason, what: str) -> Decision:
    if reason in _PERMANENT_REASONS:
        return Decision(JobState.STOPPING, reason, f"{what}; restarting would not help")
    if view.restarts >= view.max_restarts:
        return Decision(JobState.STOPPING, reason, f"{what}; {view.restarts} of at most {view.max_restarts} restarts are used up")
    why = f"{what}; restart {view.restarts + 1} of at most {view.max_restarts}"
    return Decision(JobState.RECOVERING, reason, why, counts_as_restart=True)


def _start_overdue(view: JobView, now: datetime) -> Decision | None:
    if view.generation_since is None or now - view.generation_since < timedelta(seconds=START_SECONDS):
        return None
    missing = [str(rank.rank) for rank in view.ranks if rank.state is not RankState.RUNNING]
    what = f"rank {', '.join(missing)} did not join within {START_SECONDS:.0f} s"
    return _restart_or_give_up(view, EndReason.START_TIMEOUT, what)


def _hopeless(view: JobView, now: datetime) -> Decision | None:
    """The culprit's report may arrive after its victims': only when all are in is it known whether a restart can help."""
    if not view.settled(now) or not any(rank.failed for rank in view.ranks):
        return None
    reason, what = _diagnose(view)
    return _restart_or_give_up(view, reason, what) if reason in _PERMANENT_REASONS else None


def _old_ranks_overdue(view: JobView, now: datetime) -> Decision | None:
    ended = view.generation_ended_at
    if view.settled(now) or ended is None or now - ended < timedelta(seconds=STOP_SECONDS):
        return None
    alive = [str(rank.rank) for rank in view.ranks if not rank.stopped]
    why = f"rank {', '.join(alive)} of generation {view.generation} did not end within {STOP_SECONDS:.0f} s"
    return Decision(JobState.STOPPING, EndReason.STOP_TIMEOUT, why)


def _saving(view: JobView, now: datetime) -> Decision | None:
    if any(rank.failed for rank in view.ranks):
        return _pause_without_saving(view, *_diagnose(view))
    if view.settled(now):
        return _saved(view)
    if view.in_state_longer_than(PAUSE_SECONDS, now):
        return _pause_without_saving(view, EndReason.STOP_TIMEOUT, f"its ranks did not save within {PAUSE_SECONDS:.0f} s")
    return None


def _saved(view: JobView) -> Decision:
    if view.all_exited_with("completed"):
        return Decision(JobState.COMPLETED, EndReason.COMPLETED, "it completed before it could be paused")
    return Decision(JobState.PAUSED, EndReason.PAUSED, "saved; its slots are free")


def _pause_without_saving(view: JobView, reason: EndReason, what: str) -> Decision:
    """A crash while saving costs a restart and the steps since the newest checkpoint, but not the pause: to run again
    only to save at that checkpoint would end at the same step."""
    if reason in _PERMANENT_REASONS or view.restarts >= view.max_restarts:
        return Decision(JobState.STOPPING, reason, f"{what} while it was being paused, and no restart is left")
    why = f"{what} while it was being paused; when resumed it continues from its newest checkpoint"
    return Decision(JobState.STOPPING, EndReason.PAUSED, why, counts_as_restart=True)


def _conclude(view: JobView, why: str) -> Decision:
    """The first verdict stands, unless a victim's word was all there was then."""
    reason = view.end_reason or EndReason.STOP_TIMEOUT
    to = _ENDS.get(reason, JobState.FAILED)
    if reason is EndReason.RANK_CRASHED and any(rank.failed for rank in view.ranks):
        reason, why = _diagnose(view)
    return Decision(to, None if to is JobState.QUEUED else reason, why)


_ENDS: Mapping[EndReason, JobState] = {
    EndReason.COMPLETED: JobState.COMPLETED,
    EndReason.CANCELLED: JobState.CANCELLED,
    EndReason.PAUSED: JobState.PAUSED,
    EndReason.PREEMPTED: JobState.QUEUED,
}

_PERMANENT_REASONS = frozenset({EndReason.INVALID_INPUT, EndReason.CHECKPOINT_FAILED})
