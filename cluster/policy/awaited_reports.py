"""Waiting for a culprit's report, or for agents that connect again, before a decision. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from paceline.cluster.policy.decisions import Decision, Regroup, Restart
from paceline.cluster.policy.failures import is_victim
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import EndReason

#: How long a restart waits for the rank that caused it to be heard of, when only ranks that it dragged down have spoken. It is
#: usually milliseconds behind them.
CULPRIT_SECONDS = 1.0
_FAULTS = frozenset({EndReason.RANK_CRASHED, EndReason.NODE_LOST})


def is_awaited(view: JobView, decision: Decision, now: datetime) -> bool:
    """Whether to put off a decision that follows from a fault: it rests on reports of victims alone, and a rank that may be the culprit
    has yet to report; or agents are about to connect again after a stall of the coordinator, whose healthy ranks would be given up.

    Closing up waits for agents alone: its survivors would lose time, and the culprit is corrected later."""
    by_fault = isinstance(decision, Regroup | Restart) or decision.counts_as_restart or decision.reason in _FAULTS
    if by_fault and view.awaits_agents(now):
        return True
    failed = [rank for rank in view.ranks if rank.failed]
    if isinstance(decision, Regroup) or decision.reason is not EndReason.RANK_CRASHED or not failed:
        return False
    only_victims = all(rank.failure is not None and is_victim(rank.failure) for rank in failed)
    unheard = any(not rank.stopped for rank in view.ranks)
    heard_at = min(rank.updated_at for rank in failed)
    return only_victims and unheard and view.waited(heard_at, now) < timedelta(seconds=CULPRIT_SECONDS)
