"""The life cycle of a job as one pure decision: from what is known of it to the next state, with the reason.

`decide` never waits and never places: a job that needs slots says so through `wants_slots`, and the scheduler answers with
a new generation. A generation that has *ended* only has ranks that are being stopped; nothing it says moves the job on.
What a fault makes of it is decided in `recovery.py`, which ranks a running gang gains and gives up in `elastic.py`.

Deadlines, by state (in each the job leaves by itself or by the rule named here):
    queued      none: a job may wait for slots for ever, and `pending` says what is missing
    starting    START_SECONDS until every rank has joined, then a restart
    running     none: a step may take as long as it takes; a dead rank, a lost node or a hang (`cluster.hangs`) ends it;
                BROKEN_SECONDS for a broken group of which every rank lives
    recovering  their grace and STOP_SECONDS until the old ranks are gone; BACKLOG_SECONDS for what they saved; then none while waiting for slots; then START_SECONDS. A job
                that closes up skips the first two: its survivors are the next generation
    resizing    none while its members train on towards the step at which they change; ENTER_SECONDS from then on, after
                 which they go on without whoever has not come
    stopping    PAUSE_SECONDS for a save, then the ranks are killed; their grace and STOP_SECONDS for everything else. A job that closes up
                does so in a save too, and pauses afterwards
    paused      none: it is the user's turn
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from cluster import hangs, recovery
from cluster.states import EndReason, Intent, JobState, RankState
from cluster.views import SAVING, Decision, JobView, listed

START_SECONDS = 120.0
PAUSE_SECONDS = 120.0
STOP_SECONDS = 60.0


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
    return view.state is JobState.RECOVERING and view.generation_ended and view.settled(now) and view.told(now)


def _queued(view: JobView, now: datetime) -> Decision | None:
    if view.desired is Intent.CANCEL:
        return Decision(JobState.CANCELLED, EndReason.CANCELLED, "cancelled before it was placed")
    if view.desired is Intent.PAUSE:
        return Decision(JobState.PAUSED, EndReason.PAUSED, "paused before it was placed")
    return None


def _starting(view: JobView, now: datetime) -> Decision | None:
    ended = _obey_cancel(view) or _finished(view) or recovery.failed(view)
    joining = _joined(view) or recovery.stranded(view, now) or recovery.newcomers_overdue(view, now)
    return ended or joining or _pause_unjoined(view) or _start_overdue(view, now)


def _running(view: JobView, now: datetime) -> Decision | None:
    ended = _obey_cancel(view) or _finished(view) or recovery.failed(view) or recovery.stranded(view, now)
    return ended or _obey_pause(view) or _make_way(view)


def _resizing(view: JobView, now: datetime) -> Decision | None:
    """Its members are at work in the generation before, or on their way: nobody is sent back, and a pause comes once they have joined."""
    stayers = replace(view, ranks=tuple(rank for rank in view.ranks if not rank.newcomer))
    ended = _obey_cancel(view) or _finished(stayers) or recovery.failed(view)
    return ended or _joined(view) or recovery.stranded(view, now) or recovery.newcomers_overdue(view, now)


def _recovering(view: JobView, now: datetime) -> Decision | None:
    if not view.generation_ended:
        return _starting(view, now)
    return _obey_cancel(view) or _obey_pause(view) or recovery.hopeless(view, now) or _old_ranks_overdue(view, now)


def _stopping(view: JobView, now: datetime) -> Decision | None:
    if view.desired is Intent.CANCEL and view.end_reason in SAVING:
        return Decision(JobState.STOPPING, EndReason.CANCELLED, "cancelled while it was being paused")
    if view.end_reason in SAVING and not view.generation_ended:
        return _saving(view, now)
    if view.settled(now):
        return _conclude(view, "all its ranks are gone")
    patience = view.grace_seconds + STOP_SECONDS
    if view.in_state_longer_than(patience, now):
        alive = sum(not rank.stopped for rank in view.ranks)
        return _conclude(
            view,
            f"{alive} of {len(view.ranks)} ranks did not confirm their end within {patience:.0f} s; their slots stay taken until they do",
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
    JobState.RESIZING: _resizing,
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


def _make_way(view: JobView) -> Decision | None:
    """A job that cannot change its size while it runs goes back to the queue for another one, or for other nodes."""
    if view.min_ranks is not None or not view.saves:
        return None
    if leaving := [rank for rank in view.ranks if rank.leaving]:
        why = f"the node of rank {listed(leaving)} drains: its ranks save and exit, and the job waits for other slots"
        return Decision(JobState.STOPPING, EndReason.PREEMPTED, why)
    if view.target not in (None, len(view.ranks)):
        why = f"it is to have {view.target} ranks, and has {len(view.ranks)}: they save and exit, and the job waits for other slots"
        return Decision(JobState.STOPPING, EndReason.RESIZED, why)
    return None


def _pause_unjoined(view: JobView) -> Decision | None:
    """Before every rank has joined no step is taken: there is nothing to save, and the ranks may wait for one that never comes.
    Ranks that come from an earlier generation do have something to save: they join first."""
    if view.desired is Intent.PAUSE and not any(rank.carried for rank in view.ranks):
        return Decision(JobState.STOPPING, EndReason.PAUSED, "paused by its user before its first step", stops_ranks=True)
    return None


def _joined(view: JobView) -> Decision | None:
    if view.ranks and all(rank.state is RankState.RUNNING for rank in view.ranks):
        return Decision(JobState.RUNNING, None, f"all {len(view.ranks)} ranks of generation {view.generation} have joined")
    return None


def _finished(view: JobView) -> Decision | None:
    if view.all_exited_with("completed"):
        return Decision(JobState.STOPPING, EndReason.COMPLETED, f"all {len(view.ranks)} ranks have completed")
    if view.ranks and not view.is_script and all(rank.state is RankState.EXITED and not rank.failed for rank in view.ranks):
        return Decision(JobState.STOPPING, EndReason.PAUSED, "its ranks have saved and exited")
    return None


def _start_overdue(view: JobView, now: datetime) -> Decision | None:
    if view.generation_since is None or now - view.generation_since < timedelta(seconds=START_SECONDS):
        return None
    missing = [rank for rank in view.ranks if rank.state is not RankState.RUNNING]
    what = f"rank {listed(missing)} did not join within {START_SECONDS:.0f} s"
    return recovery.restart_or_give_up(view, EndReason.START_TIMEOUT, what)


def _old_ranks_overdue(view: JobView, now: datetime) -> Decision | None:
    ended, patience = view.generation_ended_at, view.grace_seconds + STOP_SECONDS
    if view.settled(now) or ended is None or now - ended < timedelta(seconds=patience):
        return None
    alive = [rank for rank in view.ranks if not rank.stopped]
    why = f"rank {listed(alive)} of generation {view.generation} did not end within {patience:.0f} s"
    return Decision(JobState.STOPPING, EndReason.STOP_TIMEOUT, why)


def _saving(view: JobView, now: datetime) -> Decision | None:
    if survivors := _close_up_to_save(view, now):
        return survivors
    if any(rank.failed for rank in view.ranks):
        return _pause_without_saving(view, *recovery.diagnose(view))
    if found := hangs.verdict(view.ranks, slow_is_hung=view.slow_is_hung):
        return _pause_without_saving(view, EndReason.HANG, found.what)
    overdue = view.in_state_longer_than(PAUSE_SECONDS, now)
    if view.settled(now) or (overdue and all(rank.settled(now) for rank in view.ranks)):
        return _saved(view)
    if overdue:
        return _pause_without_saving(view, EndReason.STOP_TIMEOUT, f"its ranks did not save within {PAUSE_SECONDS:.0f} s")
    return None


def _close_up_to_save(view: JobView, now: datetime) -> Decision | None:
    """The survivors save in the place of all, as a job that runs would go on; its user still wants the pause, and gets it once they
    stand again. A rank that has exited well has left a whole checkpoint of that very step: then nothing is lost. To go back to a checkpoint only
    to save it again would be of no use."""
    if any(rank.outcome in ("paused", "completed") for rank in view.ranks):
        return None
    running = replace(view, state=JobState.RUNNING)
    decision = recovery.failed(running) or recovery.stranded(running, now)
    return decision if decision is not None and decision.survivors and not decision.falls_back else None


def _saved(view: JobView) -> Decision:
    if view.all_exited_with("completed"):
        return Decision(JobState.COMPLETED, EndReason.COMPLETED, "it completed before it could be paused")
    return _conclude(view, "saved; its slots are free")


def _pause_without_saving(view: JobView, reason: EndReason, what: str) -> Decision:
    """A crash while saving costs a restart and the steps since the newest checkpoint, but not the pause: to run again
    only to save at that checkpoint would end at the same step."""
    if reason in recovery.PERMANENT_REASONS or view.restarts >= view.max_restarts:
        return Decision(JobState.STOPPING, reason, f"{what} while it was being paused, and no restart is left")
    why = f"{what} while it was being paused; when resumed it continues from its newest checkpoint"
    return Decision(JobState.STOPPING, view.end_reason, why, counts_as_restart=True)


def _conclude(view: JobView, why: str) -> Decision:
    """The first verdict stands, unless a victim's word was all there was then."""
    reason = view.end_reason or EndReason.STOP_TIMEOUT
    to = _ENDS.get(reason, JobState.FAILED)
    if reason is EndReason.RANK_CRASHED and any(rank.failed for rank in view.ranks):
        reason, why = recovery.diagnose(view)
    return Decision(to, None if to is JobState.QUEUED else reason, why)


_ENDS: Mapping[EndReason, JobState] = {
    EndReason.COMPLETED: JobState.COMPLETED,
    EndReason.CANCELLED: JobState.CANCELLED,
    EndReason.PAUSED: JobState.PAUSED,
    EndReason.PREEMPTED: JobState.QUEUED,
    EndReason.RESIZED: JobState.QUEUED,
}
