"""The consequence of a fault for a job: the culprit, and whether the others close up, all restart, or the job ends.

Each rule that `decide.py` asks is named for its occasion (`on_…`), and returns None where that has not come.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paceline.cluster.policy import hangs
from paceline.cluster.policy.decisions import Decision, Members, Regroup, Restart, Stop
from paceline.cluster.policy.failures import LEFT_EARLY, end_reason_of, is_victim, left_early, root_cause, would_repeat
from paceline.cluster.policy.members import members_alone, regroup
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import EndReason, JobState, RankState
from paceline.monitoring.words import plural
from paceline.training.reporting.failure_kinds import first_line

#: How long the present ranks wait for a parked rank that was given a place among them; START_SECONDS for a new process.
ENTER_SECONDS = 20.0
#: How long a rank that has lost a peer may wait for a report of which peer it was.
BROKEN_SECONDS = 10.0
#: After so many generations in a row without a step, closing up is one of a job's restarts: else a fault that comes again in each of them would go
#: on for ever. Lost nodes are no such fault.
STEPLESS_GENERATIONS = 3
#: A restart would only meet them again.
PERMANENT_REASONS = frozenset({EndReason.INVALID_INPUT, EndReason.CHECKPOINT_FAILED, EndReason.LOSS_NOT_FINITE, EndReason.LOSS_SPIKE})
#: All ranks are to go back to a checkpoint: the survivors have the state that is not wanted any more.
ALL_GO_BACK = frozenset({EndReason.ROLLED_BACK})


@dataclass(frozen=True)
class JobFault:
    """The reason for which a generation ends that was not told to."""

    reason: EndReason
    what: str
    counts: bool = True  # as one of the restarts that a job may have
    is_ours: bool = False  # agents ended the ranks, and not the job's own doing


def on_failure(view: JobView) -> Decision | None:
    """The first that applies decides: the user's policy for bad losses, a fault of ranks or their nodes, a hang (`cluster.policy.hangs`)."""
    if view.stop is not None:
        return Stop(view.stop.reason, f"{view.stop.what}; it is stopped, as its fault_tolerance asks")
    fault = _fault_of(view)
    if fault is None:
        return _hung(view)
    if _is_completing(view) and not fault.is_ours and not any(rank.failed and not rank.newcomer for rank in view.ranks):
        return None  # the others have got to the end without it
    return _close_up(view, fault.reason, fault.what) or restart_or_give_up(view, fault.reason, fault.what, counts=fault.counts)


def _fault_of(view: JobView) -> JobFault | None:
    """The fault by the first sign of one: ranks ended by their agents, an agent that is away along with a peer's report, a failed rank,
    nodes that are silent where the others wait."""
    if ended_by_agents := _ended_by_agents(view):
        return JobFault(EndReason.NODE_LOST, _left(ended_by_agents), counts=False, is_ours=True)
    if cut_off := _cut_off(view):
        return JobFault(EndReason.NODE_LOST, _cannot_be_reached(cut_off), counts=False)
    if any(rank.failed for rank in view.ranks):
        reason, what = diagnose(view)
        counts = reason is not EndReason.NODE_REMOVED and not (view.is_elastic and reason is EndReason.NODE_LOST)
        return JobFault(reason, what, counts=counts)
    if silent := _silent(view):
        return JobFault(EndReason.NODE_LOST, _cannot_be_reached(silent))
    return None


def on_broken_group(view: JobView, now: datetime) -> Decision | None:
    """A connection broke and no rank died of it: all ranks go on in a new generation."""
    broken = [rank for rank in view.ranks if rank.broken and rank.waited(now) >= timedelta(seconds=BROKEN_SECONDS)]
    if view.min_ranks is None or not broken:
        return None
    reports = [rank.failure for rank in broken if rank.failure is not None]
    what = f"rank {listed(broken)} lost a connection, and every rank is alive: {first_line(reports[0].message)}"
    return _close_up(view, EndReason.RANK_CRASHED, what) or restart_or_give_up(view, EndReason.RANK_CRASHED, what)


def on_overdue_joiners(view: JobView, now: datetime) -> Decision | None:
    """The members from the generation before have left it, and wait for joiners for too long."""
    stayers = [rank for rank in view.ranks if not rank.newcomer]
    late = [rank for rank in view.ranks if rank.newcomer and rank.process_kept and rank.state is not RankState.RUNNING]
    there = all(rank.state in (RankState.STARTING, RankState.RUNNING) for rank in stayers)
    entered = max((rank.updated_at for rank in stayers), default=now)
    if not late or not stayers or not there or view.waited(entered, now) < timedelta(seconds=ENTER_SECONDS):
        return None
    what = f"rank {listed(late)} did not join within {ENTER_SECONDS:.0f} s"
    if view.plan.spreads_state:
        without = [rank.rank for rank in late]
        return _close_up(view, EndReason.START_TIMEOUT, what, without) or restart_or_give_up(view, EndReason.START_TIMEOUT, what)
    why = f"{what}; the others go on as generation {view.generation + 1}"
    rest = tuple(rank.rank for rank in view.ranks if rank not in late)
    return Regroup(EndReason.START_TIMEOUT, why, Members(rest))


def without_newcomers(view: JobView, reason: EndReason, what: str) -> Regroup | None:
    """Let the members from the generation before go on alone. None where they would have to go back to a checkpoint."""
    newcomers = [rank.rank for rank in view.ranks if rank.newcomer]
    if view.plan.spreads_state and len(view.ranks) - len(newcomers) != view.size_before:
        return None  # another member is about to leave, with its part of the state
    alone = _close_up(replace(view, parked=()), reason, what, without=newcomers)
    return alone if alone is not None and alone.members.whole else None


def on_futile_restart(view: JobView, now: datetime) -> Decision | None:
    """The decision to stop once all reports are in: the culprit's report may arrive after its victims', and only then is it known
    whether a restart can help."""
    if not view.is_finished(now) or not any(rank.failed for rank in view.ranks):
        return None
    reason, what = diagnose(view)
    return restart_or_give_up(view, reason, what) if reason in PERMANENT_REASONS else None


def diagnose(view: JobView) -> tuple[EndReason, str]:
    reports = [rank.failure for rank in view.ranks if rank.failed and rank.failure]
    culprit, _ = root_cause(reports)
    early = left_early(reports, [rank.rank for rank in view.ranks if rank.outcome == "completed"])
    lost = [rank for rank in view.ranks if rank.state is RankState.LOST]
    if lost and (culprit is None or is_victim(culprit)):
        return EndReason.NODE_LOST, f"the node of rank {listed(lost)} is lost"
    if culprit is None:
        exited = next(rank.rank for rank in view.ranks if rank.failed)
        return EndReason.RANK_CRASHED, f"rank {exited} exited without a report"
    if early is not None:
        return EndReason.RANK_CRASHED, f"rank {early}: {LEFT_EARLY}"
    return end_reason_of(culprit), f"rank {culprit.rank}: {first_line(culprit.message)}"


def _ended_by_agents(view: JobView) -> list[RankView]:
    """Ranks that their agents ended, since the agents were told to end themselves; empty where there is another cause. Not a fault of
    the job. A script's rank may have exited with 0 then, which is not its completion."""
    failed = [rank for rank in view.ranks if rank.failed]
    if not all(rank.failure is not None and is_victim(rank.failure) for rank in failed):
        return []
    obeyed = [rank for rank in view.ranks if view.is_script and rank.outcome == "paused"]
    return obeyed + [rank for rank in failed if rank.failure is not None and rank.failure.ordered]


def _left(ranks: Sequence[RankView]) -> str:
    rank = "rank" if len(ranks) == 1 else "ranks"
    return f"the agent of {rank} {listed(ranks)} was stopped, and the {rank} with it"


def _silent(view: JobView) -> list[RankView]:
    """Ranks behind an agent that is away. That alone says nothing; along with a peer's report of a broken connection, and no other
    culprit, it means that their node is gone. Where a peer has seen another rank's end, the agent of that rank is about to report it."""
    witnesses = [rank for rank in view.ranks if rank.broken and rank.reachable]
    ended = {peer for rank in witnesses if rank.failure for peer in rank.failure.ended}
    if view.min_ranks is None or not witnesses or any(rank.rank in ended and rank.reachable for rank in view.ranks):
        return []
    return [rank for rank in view.ranks if not rank.stopped and not rank.reachable]


def _cut_off(view: JobView) -> list[RankView]:
    """Ranks of an elastic script behind an agent that is away, where the others have only lost their connections. Its world changes with
    its nodes: to lose one is no failure of the script."""
    failed = [rank for rank in view.ranks if rank.failed]
    if not view.is_elastic or not failed or not all(rank.failure is not None and is_victim(rank.failure) for rank in failed):
        return []
    return [rank for rank in view.ranks if not rank.stopped and not rank.reachable]


def _cannot_be_reached(ranks: Sequence[RankView]) -> str:
    return f"the agent of rank {listed(ranks)} is gone, and other ranks have lost their connection to it"


def _hung(view: JobView) -> Decision | None:
    found = view.silence or hangs.verdict(view.ranks, slow_is_hung=view.slow_is_hung)
    if found is None:
        return None
    close_up = None if found.repeats else _close_up(view, EndReason.HANG, found.what, without=found.culprits)
    return replace(close_up or restart_or_give_up(view, EndReason.HANG, found.what), culprits=found.culprits)


def _close_up(view: JobView, reason: EndReason, what: str, without: Collection[int] = ()) -> Regroup | None:
    """Make the next generation of the survivors at once, with parked ranks in place of the dead: neither the reports nor the end of the
    dead is waited for. Ranks that were to join are left out where only the members alone lose nothing of a sharded model. Where the
    survivors are too few for it, the dead are started again in their slots, if they have left them.
    None where it cannot be, or would not help: too few survive, nothing had begun, the run was just ending, the code itself is broken,
    or all would go back to a checkpoint, or have closed up without a step, too often."""
    there = [rank for rank in view.ranks if not rank.stopped and rank.reachable and rank.state is not RankState.STOPPING]
    survivors = [rank for rank in there if rank.rank not in without]
    begun = view.state in (JobState.RUNNING, JobState.RESIZING) or any(rank.process_kept for rank in view.ranks)
    if view.min_ranks is None or not begun or _is_completing(view) or _would_fail_again(view) or all(rank.newcomer for rank in survivors):
        return None
    joining = [rank for rank in view.parked if rank.state is RankState.PARKED and rank.reachable and not rank.leaving]
    members = regroup(view, survivors, joining) or (regroup(view, survivors, joining, _vacant(view)) if view.plan.spreads_state else None)
    if members is not None and not members.whole:
        members = members_alone(view, survivors) or members
    if members is None:
        return None
    is_futile = _is_futile(view, reason, members)
    is_free = members.whole and not is_futile
    if not (is_free or view.restarts < view.max_restarts):
        return None
    without_step = f"the last {view.stepless} generations made no step; " if is_futile else ""
    return Regroup(reason, f"{what}; {without_step}{_describe_continuing(view, members, is_free=is_free)}", members, is_futile=is_futile)


def _is_futile(view: JobView, reason: EndReason, members: Members) -> bool:
    """Whether the same ranks would only go on as they have, without a step. Where some died and are left out, the next generation is another one."""
    are_the_same = bool(members.replaced) or not any(rank.stopped for rank in view.ranks)
    return view.stepless >= STEPLESS_GENERATIONS and reason is not EndReason.NODE_LOST and are_the_same


def _vacant(view: JobView) -> list[RankView]:
    """Ranks that have left their slots, on nodes that would start them again."""
    return [rank for rank in view.ranks if rank.state is RankState.EXITED and rank.reachable and not rank.leaving]


def _describe_continuing(view: JobView, members: Members, *, is_free: bool) -> str:
    again = f"{_ranks(members.replaced, 'is', 'are')} started again, " if members.replaced else ""
    parked = f"{_ranks(members.parking, 'is', 'are')} parked, " if members.parking else ""
    spares = f" with spare rank {listed(members.joining)}" if members.joining else ""
    of, to = f"of {len(view.ranks)}", f"as generation {view.generation + 1}"
    counted = "" if is_free else f": {view.restarts + 1} of at most {plural(view.max_restarts, 'restart')}"
    if members.whole:
        goes_on = _ranks(members.survivors, f"{of} continues{spares}", f"{of} continue{spares}")
        return f"{again}{parked}{goes_on} {to}{counted}"
    keeps = _ranks(members.survivors, f"{of} keeps its process{spares} and goes", f"{of} keep their processes{spares} and go")
    return f"{again}{parked}{keeps} back to the newest checkpoint {to}{counted}"


def _is_completing(view: JobView) -> bool:
    return any(rank.outcome == "completed" for rank in view.ranks)


def _would_fail_again(view: JobView) -> bool:
    """Whether the root cause would come again after a restart. Failures of ranks that were only joining are ignored."""
    reports = [rank.failure for rank in view.ranks if rank.failed and rank.failure and not rank.newcomer]
    culprit, _ = root_cause(reports)
    return culprit is not None and (end_reason_of(culprit) in PERMANENT_REASONS | ALL_GO_BACK or would_repeat(culprit))


def restart_or_give_up(view: JobView, reason: EndReason, what: str, *, counts: bool = True) -> Restart | Stop:
    """Restart the job, or stop it where restarts are used up. `counts`: the restart is one of `max_restarts`."""
    if not counts:
        return Restart(reason, f"{what}; it is started again, which does not count as a restart", counts_as_restart=False)
    if reason in PERMANENT_REASONS:
        return Stop(reason, f"{what}; restarting would not help")
    if view.restarts >= view.max_restarts:
        limit = (
            f"restart limit reached ({view.restarts} of {view.max_restarts})"
            if view.max_restarts
            else "it may not restart (max_restarts: 0)"
        )
        return Stop(reason, f"{what}; {limit}")
    return Restart(reason, f"{what}; restart {view.restarts + 1} of {view.max_restarts}")


def _ranks(ranks: Sequence[int], one: str, several: str) -> str:
    """Ranks with a verb: "rank 0 goes", "ranks 0, 2 go"."""
    return f"rank {listed(ranks)} {one}" if len(ranks) == 1 else f"ranks {listed(ranks)} {several}"
