"""Waiting for a culprit's word. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from cluster.failures import is_victim
from cluster.states import EndReason
from cluster.views import Decision, JobView

#: How long a restart waits for the rank that caused it to be heard of, when only ranks that it dragged down have spoken. It is
#: usually milliseconds behind them.
CULPRIT_SECONDS = 1.0


def is_awaited(view: JobView, decision: Decision, now: datetime) -> bool:
    """Whether to put off what would be decided on the word of victims alone: a rank that may be to blame has yet to speak.

    Closing up never waits: its survivors lose time, and who is to blame is corrected later.
    """
    failed = [rank for rank in view.ranks if rank.failed]
    if decision.survivors or decision.reason is not EndReason.RANK_CRASHED or not failed:
        return False
    only_victims = all(rank.failure is not None and is_victim(rank.failure) for rank in failed)
    unheard = any(not rank.stopped for rank in view.ranks)
    heard_at = min(rank.updated_at for rank in failed)
    return only_victims and unheard and now - heard_at < timedelta(seconds=CULPRIT_SECONDS)
