"""What a fault makes of a job: who is to blame, and whether the others close up, all restart, or the job ends.

Each rule that `decide.py` asks answers None where it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cluster import hangs
from cluster.failures import LEFT_EARLY, end_reason_of, is_victim, left_early, root_cause, would_repeat
from cluster.members import Members, regroup
from cluster.states import EndReason, JobState, RankState
from cluster.views import Decision, JobView, RankView, listed

#: How long those who are there wait for a parked rank that was given a place among them; START_SECONDS for a new process.
ENTER_SECONDS = 20.0
#: How long a rank that has lost a peer may wait for somebody to say which.
BROKEN_SECONDS = 10.0
#: A restart would only meet them again.
PERMANENT_REASONS = frozenset({EndReason.INVALID_INPUT, EndReason.CHECKPOINT_FAILED})


def failed(view: JobView) -> Decision | None:
    """The first who answers decides: a rank that failed, an agent that is away along with a peer's word, a hang (`cluster.hangs`)."""
    counts = True
    if sent_home := _sent_home(view):
        counts, reason, what = False, EndReason.NODE_LOST, _left(sent_home)
    elif any(rank.failed for rank in view.ranks):
        reason, what = diagnose(view)
    elif silent := _silent(view):
        reason, what = EndReason.NODE_LOST, f"the agent of rank {listed(silent)} is gone, and other ranks have lost their connection to it"
    else:
        return _hung(view)
    if _ending(view) and not sent_home and not any(rank.failed and not rank.newcomer for rank in view.ranks):
        return None  # the others have got to the end without it
    return _close_up(view, reason, what) or restart_or_give_up(view, reason, what, counts=counts)


def stranded(view: JobView, now: datetime) -> Decision | None:
    """A connection broke and nobody died of it: everyone goes on in a new generation."""
    long_ago = now - timedelta(seconds=BROKEN_SECONDS)
    broken = [rank for rank in view.ranks if rank.broken and rank.updated_at <= long_ago]
    if view.min_ranks is None or not broken:
        return None
    what = f"rank {listed(broken)} lost a connection, and every rank is alive"
    return _close_up(view, EndReason.RANK_CRASHED, what) or restart_or_give_up(view, EndReason.RANK_CRASHED, what)


def newcomers_overdue(view: JobView, now: datetime) -> Decision | None:
    """Those who came from the generation before have left it, and wait."""
    stayers = [rank for rank in view.ranks if not rank.newcomer]
    late = [rank for rank in view.ranks if rank.newcomer and rank.carried and rank.state is not RankState.RUNNING]
    there = all(rank.state in (RankState.STARTING, RankState.RUNNING) for rank in stayers)
    entered = max((rank.updated_at for rank in stayers), default=now)
    if not late or not stayers or not there or now - entered < timedelta(seconds=ENTER_SECONDS):
        return None
    what = f"rank {listed(late)} did not join within {ENTER_SECONDS:.0f} s"
    if view.plan.in_parts:
        without = [rank.rank for rank in late]
        return _close_up(view, EndReason.START_TIMEOUT, what, without) or restart_or_give_up(view, EndReason.START_TIMEOUT, what)
    why = f"{what}; the others go on as generation {view.generation + 1}"
    rest = tuple(rank.rank for rank in view.ranks if rank not in late)
    return Decision(JobState.RECOVERING, EndReason.START_TIMEOUT, why, survivors=rest)


def hopeless(view: JobView, now: datetime) -> Decision | None:
    """The culprit's report may arrive after its victims': only when all are in is it known whether a restart can help."""
    if not view.settled(now) or not any(rank.failed for rank in view.ranks):
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
    return end_reason_of(culprit), f"rank {culprit.rank}: {culprit.message}"


def _sent_home(view: JobView) -> list[RankView]:
    """Ranks that their agents ended, since these were told to end themselves; empty where something else is to blame. No fault of the job's. A
    script's may have ended well then, which is not its completion."""
    failed = [rank for rank in view.ranks if rank.failed]
    if not all(rank.failure is not None and is_victim(rank.failure) for rank in failed):
        return []
    obeyed = [rank for rank in view.ranks if view.is_script and rank.outcome == "paused"]
    return obeyed + [rank for rank in failed if rank.failure is not None and rank.failure.ordered]


def _left(ranks: Sequence[RankView]) -> str:
    return f"the agent of rank {listed(ranks)} was told to end, and ended it"


def _silent(view: JobView) -> list[RankView]:
    """Ranks behind an agent that is away. That alone says nothing; along with a peer's word that a connection broke, and nobody
    else to blame, it means that their node is gone. Where a peer has seen somebody else's end, the agent of that one is about to tell."""
    witnesses = [rank for rank in view.ranks if rank.broken and rank.reachable]
    ended = {peer for rank in witnesses if rank.failure for peer in rank.failure.ended}
    if view.min_ranks is None or not witnesses or any(rank.rank in ended and rank.reachable for rank in view.ranks):
        return []
    return [rank for rank in view.ranks if not rank.stopped and not rank.reachable]


def _hung(view: JobView) -> Decision | None:
    found = hangs.verdict(view.ranks, slow_is_hung=view.slow_is_hung)
    if found is None:
        return None
    close_up = None if found.repeats else _close_up(view, EndReason.HANG, found.what, without=found.culprits)
    return replace(close_up or restart_or_give_up(view, EndReason.HANG, found.what), culprits=found.culprits)


def _close_up(view: JobView, reason: EndReason, what: str, without: Collection[int] = ()) -> Decision | None:
    """The next generation is made of the survivors at once, and of parked ranks in place of the dead: neither their word nor the end
    of the dead is waited for. Where they are too few for a model in parts, the dead are started again in their slots, if they have left
    them. None where it cannot be, or would not help: too few survive, nothing had begun, the run was just ending, the code itself is
    broken, or all would go back to a checkpoint and have done so too often."""
    there = [rank for rank in view.ranks if not rank.stopped and rank.reachable and rank.state is not RankState.STOPPING]
    survivors = [rank for rank in there if rank.rank not in without]
    begun = view.state in (JobState.RUNNING, JobState.RESIZING) or any(rank.carried for rank in view.ranks)
    if view.min_ranks is None or not begun or _ending(view) or _futile(view) or all(rank.newcomer for rank in survivors):
        return None
    joining = [rank for rank in view.parked if rank.state is RankState.PARKED and rank.reachable and not rank.leaving]
    members = regroup(view, survivors, joining) or (regroup(view, survivors, joining, _vacant(view)) if view.plan.in_parts else None)
    if members is None or not (members.whole or view.restarts < view.max_restarts):
        return None
    return Decision(
        JobState.RECOVERING,
        reason,
        f"{what}; {_who_goes_on(view, members)}",
        counts_as_restart=not members.whole,
        survivors=members.survivors,
        joining=members.joining,
        replaced=members.replaced,
        parking=members.parking,
        falls_back=not members.whole,
    )


def _vacant(view: JobView) -> list[RankView]:
    """Ranks that have left their slots, on nodes that would start them again."""
    return [rank for rank in view.ranks if rank.state is RankState.EXITED and rank.reachable and not rank.leaving]


def _who_goes_on(view: JobView, members: Members) -> str:
    again = f"{_ranks(members.replaced, 'is', 'are')} started again, " if members.replaced else ""
    parked = f"{_ranks(members.parking, 'is', 'are')} parked, " if members.parking else ""
    spares = f" with spare rank {_listed(members.joining)}" if members.joining else ""
    of, to = f"of {len(view.ranks)}", f"as generation {view.generation + 1}"
    if members.whole:
        goes_on = _ranks(members.survivors, f"{of} closes up{spares} and goes", f"{of} close up{spares} and go")
        return f"{again}{parked}{goes_on} on {to}"
    keeps = _ranks(members.survivors, f"{of} keeps its process{spares} and goes", f"{of} keep their processes{spares} and go")
    return f"{again}{parked}{keeps} back to the newest checkpoint {to}: {view.restarts + 1} of at most {view.max_restarts} restarts"


def _ending(view: JobView) -> bool:
    return any(rank.outcome == "completed" for rank in view.ranks)


def _futile(view: JobView) -> bool:
    """What ended a rank would come again. A newcomer's end says nothing about those who did their work without it."""
    reports = [rank.failure for rank in view.ranks if rank.failed and rank.failure and not rank.newcomer]
    culprit, _ = root_cause(reports)
    return culprit is not None and (end_reason_of(culprit) in PERMANENT_REASONS or would_repeat(culprit))


def restart_or_give_up(view: JobView, reason: EndReason, what: str, *, counts: bool = True) -> Decision:
    """`counts`: as one of `max_restarts`."""
    if not counts:
        return Decision(JobState.RECOVERING, reason, f"{what}; it is started again, which does not count as a restart", stops_ranks=True)
    if reason in PERMANENT_REASONS:
        return Decision(JobState.STOPPING, reason, f"{what}; restarting would not help")
    if view.restarts >= view.max_restarts:
        return Decision(JobState.STOPPING, reason, f"{what}; {view.restarts} of at most {view.max_restarts} restarts are used up")
    why = f"{what}; restart {view.restarts + 1} of at most {view.max_restarts}"
    return Decision(JobState.RECOVERING, reason, why, counts_as_restart=True)


def _ranks(ranks: Sequence[int], one: str, several: str) -> str:
    """rank 0 goes, ranks 0, 2 go"""
    return f"rank {_listed(ranks)} {one}" if len(ranks) == 1 else f"ranks {_listed(ranks)} {several}"


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
