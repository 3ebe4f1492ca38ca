"""The life cycle of a job as one pure decision: from the facts about it to the next state, with the reason.

`decide` never waits and never places: a job that needs slots says so through `wants_slots`, and the scheduler answers with
a new generation. A generation that has *ended* only has ranks that are being stopped; its reports no longer move the job on.
The consequences of a fault are decided in `recovery.py`, the ranks that a running gang gains and gives up in `elastic.py`.

Deadlines, by state (in each the job leaves by itself or by the rule named here). All of them wait for reports, so each starts anew when
the coordinator comes back from an outage or a stall (`JobView.up_since`):
    queued      none: a job may wait for slots for ever, and `pending` says what is missing
    starting    START_SECONDS until every rank has joined, then a restart; PREPARATION_SECONDS more while nodes get code or packages for its ranks
    running     none: a step may take as long as it takes; a dead rank, a lost node or a hang (`cluster.policy.hangs`) ends it;
                BROKEN_SECONDS for a broken group of which every rank lives. Ranks that are to join it have the time of `starting` and
                WARM_UP_SECONDS (`cluster.policy.gang_scaling`)
    recovering  their grace and STOP_SECONDS until the old ranks are gone; BACKLOG_SECONDS for their last saves; `retry_seconds` where a node could
                not start them; then none while waiting for slots; then START_SECONDS. A job that closes up skips the first three: its survivors
                are the next generation
    resizing    none while its members train on towards the step at which they change; ENTER_SECONDS from then on, after
                 which they go on without the missing ones
    stopping    PAUSE_SECONDS for a save, then the ranks are killed; their grace and STOP_SECONDS for everything else. A job that closes up
                does so in a save too, and pauses afterwards
    paused      none: the user decides
A job with a time limit (`cluster.policy.time_limit`) leaves every state in which it holds slots as soon as that is over; `resizing`
PAUSE_SECONDS later, unless its members have joined by then. A pause ends `resizing` PAUSE_SECONDS after it began where no step is lost
by it, else after LONG_CHANGE_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from paceline.cluster.policy import hangs, recovery, time_limit
from paceline.cluster.policy.decisions import SAVING, Decision, Regroup, Stop, Transition
from paceline.cluster.policy.elastic import retry_seconds
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from paceline.monitoring.words import plural
from paceline.training.link import FailureReport

START_SECONDS = 120.0
PREPARATION_SECONDS = 1800.0
PAUSE_SECONDS = 120.0
#: How long members may be at the step, or the save, at which they change, before a pause ends them without it. Much longer than a save takes.
LONG_CHANGE_SECONDS = 900.0
STOP_SECONDS = 60.0
_EXIT_CODE_OF_SIGTERM = 128 + 15
_FROM_CHECKPOINT = "when resumed it continues from its newest checkpoint"


def decide(view: JobView, now: datetime) -> Decision | None:
    """The next decision about a job; None: nothing to do yet."""
    rule = _RULES.get(view.state)
    return rule(view, now) if rule else None


def wants_slots(view: JobView, now: datetime) -> bool:
    """Whether a new generation of the job may be placed now."""
    if view.desired is not Intent.RUN:
        return False
    if view.state is JobState.QUEUED:
        return True
    ended = view.state is JobState.RECOVERING and view.generation_ended and view.is_finished(now) and view.saves_are_known(now)
    return ended and not _rests(view, now)


def _rests(view: JobView, now: datetime) -> bool:
    """Whether a job that could not begin on its nodes waits with the next attempt: what hinders it may be over in a moment."""
    if view.generation_ended_at is None or not any(rank.could_not_begin for rank in view.ranks):
        return False
    return now - view.generation_ended_at < timedelta(seconds=retry_seconds(max(1, view.restarts)))


def _queued(view: JobView, now: datetime) -> Decision | None:
    if view.desired is Intent.CANCEL:
        return Transition(JobState.CANCELLED, EndReason.CANCELLED, "cancelled before it was placed")
    if view.desired is Intent.PAUSE:
        return Transition(JobState.PAUSED, EndReason.PAUSED, "paused before it was placed")
    return None


def _starting(view: JobView, now: datetime) -> Decision | None:
    ended = _on_cancel(view) or _on_completion(view) or recovery.on_failure(view)
    joining = _on_all_joined(view) or recovery.on_broken_group(view, now) or recovery.on_overdue_joiners(view, now)
    return ended or joining or _on_pause_unjoined(view, now) or time_limit.on_limit_unjoined(view, now) or _on_overdue_start(view, now)


def _running(view: JobView, now: datetime) -> Decision | None:
    ended = _on_cancel(view) or _on_completion(view) or recovery.on_failure(view) or recovery.on_broken_group(view, now)
    return ended or _on_pause(view) or time_limit.on_limit(view, now) or _on_resize(view)


def _resizing(view: JobView, now: datetime) -> Decision | None:
    """Decide about a job that changes its members, which are at work in the generation before, or on their way. No member is sent back,
    and a pause comes once they have joined, or have not come to it for long."""
    stayers = replace(view, ranks=tuple(rank for rank in view.ranks if not rank.newcomer))
    ended = _on_cancel(view) or _on_completion(stayers) or recovery.on_failure(view)
    joining = _on_all_joined(view) or recovery.on_broken_group(view, now) or recovery.on_overdue_joiners(view, now)
    return ended or joining or time_limit.on_limit_in_change(view, now, PAUSE_SECONDS) or _on_overdue_pause(view, now)


def _recovering(view: JobView, now: datetime) -> Decision | None:
    if not view.generation_ended:
        return _starting(view, now)
    ended = _on_cancel(view) or _on_pause(view) or recovery.on_futile_restart(view, now)
    return ended or time_limit.on_limit_unjoined(view, now) or _on_overdue_exit(view, now)


def _stopping(view: JobView, now: datetime) -> Decision | None:
    intended = view.end_reason
    if view.desired is Intent.CANCEL and intended in SAVING:
        return Stop(EndReason.CANCELLED, "cancelled while it saved")
    if intended in SAVING and not view.generation_ended:
        return _saving(view, intended, now)
    if view.is_finished(now):
        return _conclude(view, "all its ranks are gone")
    patience = view.grace_seconds + STOP_SECONDS
    if view.in_state_longer_than(patience, now):
        alive = sum(not rank.stopped for rank in view.ranks)
        return _conclude(
            view,
            f"{alive} of {plural(len(view.ranks), 'rank')} did not confirm their end within {patience:.0f} s; their slots stay taken until they do",
        )
    return None


def _paused(view: JobView, now: datetime) -> Decision | None:
    if view.desired is Intent.CANCEL:
        return Transition(JobState.CANCELLED, EndReason.CANCELLED, "cancelled while paused")
    if view.desired is Intent.RUN:
        return Transition(JobState.QUEUED, None, "resumed")
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


def _on_cancel(view: JobView) -> Decision | None:
    if view.desired is Intent.CANCEL:
        return Stop(EndReason.CANCELLED, "cancelled by its user")
    return None


def _on_pause(view: JobView) -> Decision | None:
    if view.desired is Intent.PAUSE:
        why = f"paused by its user: its ranks {view.exit_description}"
        return Stop(EndReason.PAUSED, why, stops_ranks=view.is_script)
    return None


def _on_resize(view: JobView) -> Decision | None:
    """Send a job that cannot change its size while it runs back to the queue for another size, or for other nodes. The world of an
    elastic script is decided along with all other gangs (`cluster.policy.script_worlds`)."""
    if view.min_ranks is not None or not view.saves:
        return None
    if leaving := [rank for rank in view.ranks if rank.leaving]:
        why = f"the node of rank {listed(leaving)} drains: its ranks {view.exit_description}, and the job waits for other slots"
        return Stop(EndReason.PREEMPTED, why, stops_ranks=view.is_script)
    if not view.is_elastic and view.target not in (None, len(view.ranks)):
        why = f"it is to have {plural(view.target or 0, 'rank')}, and has {len(view.ranks)}: they save and exit, and the job waits for other slots"
        return Stop(EndReason.RESIZED, why)
    return None


def _on_pause_unjoined(view: JobView, now: datetime) -> Decision | None:
    """Pause a job before every rank has joined: no step was taken, so there is nothing to save, and the ranks may wait for one that
    never comes. Ranks from an earlier generation do have something to save: they join first."""
    if view.desired is Intent.PAUSE and not any(rank.process_kept for rank in view.ranks) and not view.may_have_joined(now):
        return Stop(EndReason.PAUSED, "paused by its user before its first step", stops_ranks=True)
    return None


def _on_overdue_pause(view: JobView, now: datetime) -> Decision | None:
    """Pause a job whose members are at work for long in the generation that they are to leave: they cannot save, or their steps take long. They
    go on without newcomers, and pause then. Where that would cost steps, they have much longer for it: they may be saving, and the pause may
    have been asked for only now. No newcomer must be on its way any more then."""
    newcomers = [rank for rank in view.ranks if rank.newcomer]
    stayers = [rank for rank in view.ranks if not rank.newcomer]
    at_work = all(rank.state is RankState.ASSIGNED and rank.reachable for rank in stayers)
    if view.desired is not Intent.PAUSE or not at_work or not view.in_state_longer_than(PAUSE_SECONDS, now):
        return None
    what = f"its members did not change within {PAUSE_SECONDS:.0f} s, and it is to be paused"
    if alone := recovery.without_newcomers(view, EndReason.STOP_TIMEOUT, what):
        return alone
    if any(rank.state is RankState.ASSIGNED for rank in newcomers) or not view.in_state_longer_than(LONG_CHANGE_SECONDS, now):
        return None
    why = f"its members did not change within {LONG_CHANGE_SECONDS:.0f} s while it was to be paused; {_FROM_CHECKPOINT}"
    # a user asked for it: where no restart is left it costs none, instead of failing the job
    return Stop(EndReason.PAUSED, why, stops_ranks=True, counts_as_restart=view.restarts < view.max_restarts)


def _on_all_joined(view: JobView) -> Decision | None:
    if view.ranks and all(rank.state is RankState.RUNNING for rank in view.ranks):
        return Transition(JobState.RUNNING, None, f"{_all_ranks(view, f' of generation {view.generation}')} joined")
    return None


def _all_ranks(view: JobView, which: str = "") -> str:
    return f"its only rank{which} has" if len(view.ranks) == 1 else f"all {len(view.ranks)} ranks{which} have"


def _on_completion(view: JobView) -> Decision | None:
    if view.all_exited_with("completed"):
        return Stop(EndReason.COMPLETED, f"{_all_ranks(view)} completed")
    if own := _on_own_pause(view):
        return own
    if view.ranks and not view.is_script and all(rank.state is RankState.EXITED and not rank.failed for rank in view.ranks):
        return Stop(EndReason.PAUSED, "its ranks have saved and exited")
    return None


def _on_own_pause(view: JobView) -> Stop | None:
    if view.own_pause is None or not view.all_exited_with("paused"):
        return None
    why = f"{_all_ranks(view)} saved and exited after step {view.own_pause}, as training.pause_at_steps says"
    return Stop(EndReason.PAUSED, why, waits_for_user=True)


def _on_overdue_start(view: JobView, now: datetime) -> Decision | None:
    missing = [rank for rank in view.ranks if rank.state is not RankState.RUNNING]
    since, limit, late = view.generation_since, START_SECONDS, "did not join"
    if since is not None and view.needs_preparation:
        since = max([since, *(rank.updated_at for rank in view.ranks if rank.state is not RankState.ASSIGNED)])
        if preparing := [rank for rank in missing if rank.state is RankState.ASSIGNED]:
            since, limit, late, missing = (
                view.generation_since,
                START_SECONDS + PREPARATION_SECONDS,
                "did not get its code or packages",
                preparing,
            )
    if since is None or view.waited(since, now) < timedelta(seconds=limit):
        return None
    what = f"rank {listed(missing)} {late} within {limit:.0f} s"
    return recovery.restart_or_give_up(view, EndReason.START_TIMEOUT, what)


def _on_overdue_exit(view: JobView, now: datetime) -> Decision | None:
    ended, patience = view.generation_ended_at, view.grace_seconds + STOP_SECONDS
    if view.is_finished(now) or ended is None or view.waited(ended, now) < timedelta(seconds=patience):
        return None
    alive = [rank for rank in view.ranks if not rank.stopped]
    why = f"rank {listed(alive)} of generation {view.generation} did not end within {patience:.0f} s"
    return Stop(EndReason.STOP_TIMEOUT, why)


def _saving(view: JobView, intended: EndReason, now: datetime) -> Decision | None:
    """`intended`: what its ranks save for."""
    if survivors := _close_up_to_save(view, now):
        return survivors
    if any(rank.failed for rank in view.ranks):
        return _pause_without_saving(view, intended, *recovery.diagnose(view))
    if found := hangs.verdict(view.ranks, slow_is_hung=view.slow_is_hung):
        return _pause_without_saving(view, intended, EndReason.HANG, found.what)
    overdue = view.in_state_longer_than(PAUSE_SECONDS, now)
    if view.is_finished(now) or (overdue and all(rank.is_finished(now) for rank in view.ranks)):
        return _saved(view)
    if overdue:
        return _pause_without_saving(view, intended, EndReason.STOP_TIMEOUT, f"its ranks did not save within {PAUSE_SECONDS:.0f} s")
    return None


def _close_up_to_save(view: JobView, now: datetime) -> Regroup | None:
    """Let the survivors save for all ranks, as a running job would close up; the pause follows once they have joined. Not after a rank
    that has exited well, since that left a whole checkpoint of this very step, and not where the survivors would go back to a checkpoint
    only to save it again."""
    if any(rank.outcome in ("paused", "completed") for rank in view.ranks):
        return None
    running = replace(view, state=JobState.RUNNING)
    decision = recovery.on_failure(running) or recovery.on_broken_group(running, now)
    return decision if isinstance(decision, Regroup) and decision.members.whole else None


def _saved(view: JobView) -> Transition | Stop:
    if view.all_exited_with("completed"):
        return Transition(JobState.COMPLETED, EndReason.COMPLETED, "it completed before it could be paused")
    waits_for_slots = view.desired is Intent.RUN and view.end_reason in (EndReason.PREEMPTED, EndReason.RESIZED)
    if waits_for_slots and (own := _on_own_pause(view)):  # placed again, it would train on past that step
        return own
    return _conclude(view, "saved; its slots are free")


def _pause_without_saving(view: JobView, intended: EndReason, reason: EndReason, what: str) -> Stop:
    """Pause after a crash while saving: it costs a restart and the steps since the newest checkpoint, but not the pause. To run again
    only to save at that checkpoint would end at the same step."""
    if intended is EndReason.TIME_LIMIT:
        return time_limit.could_not_save(what)
    if reason in recovery.PERMANENT_REASONS or view.restarts >= view.max_restarts:
        return Stop(reason, f"{what} while it was being paused, and no restart is left")
    why = f"{what} while it was being paused; {_FROM_CHECKPOINT}"
    return Stop(intended, why, counts_as_restart=True)


def _conclude(view: JobView, why: str) -> Transition:
    """Keep the end reason set when stopping began, unless it rested on a victim's report alone and a better report has come. A script
    that was to save may have completed instead."""
    reason = view.end_reason or EndReason.STOP_TIMEOUT
    if view.is_script and reason in SAVING:
        if view.all_exited_with("completed"):
            return Transition(JobState.COMPLETED, EndReason.COMPLETED, "it completed before its ranks could be stopped")
        why = _unsaved(view) or why
    to = _ENDS.get(reason, JobState.FAILED)
    if reason is EndReason.RANK_CRASHED and any(rank.failed for rank in view.ranks):
        reason, why = recovery.diagnose(view)
    return Transition(to, None if to is JobState.QUEUED else reason, why)


def _unsaved(view: JobView) -> str:
    """The ranks of a script that did more than end at SIGTERM, and what that means, as text; empty where all ended plainly. A rank that
    was dragged down by another rank's end had nothing to save by itself."""
    found = [rank for rank in view.ranks if rank.failed and rank.failure is not None and not _exited_on_sigterm(rank.failure)]
    if not found:
        return ""
    said = "; ".join(f"rank {rank.rank}: {rank.failure.message}" for rank in found if rank.failure is not None)
    return f"{said}; what had not been saved may be lost"


def _exited_on_sigterm(failure: FailureReport) -> bool:
    """Whether an exit code stands for the signal: a shell, or another program that starts the script, turns a signal into an exit code."""
    by_sigterm = failure.signal == "SIGTERM" or failure.exit_code == _EXIT_CODE_OF_SIGTERM
    return failure.kind == "peer_lost" or (failure.ordered and by_sigterm)


_ENDS: Mapping[EndReason, JobState] = {
    EndReason.COMPLETED: JobState.COMPLETED,
    EndReason.CANCELLED: JobState.CANCELLED,
    EndReason.PAUSED: JobState.PAUSED,
    EndReason.PREEMPTED: JobState.QUEUED,
    EndReason.RESIZED: JobState.QUEUED,
}
