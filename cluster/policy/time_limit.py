"""The end of a job that has held its slots for as long as it may: it saves first, if it can. Pure."""

from __future__ import annotations

from datetime import datetime

from paceline.cluster.policy.decisions import Stop
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import EndReason
from paceline.training.schema.amounts import written_time


def on_limit(view: JobView, now: datetime) -> Stop | None:
    """The decision about a joined job at its limit: its ranks save and exit, as for a pause. A script's ranks get SIGTERM and their
    grace."""
    if not _is_over(view, now):
        return None
    why = f"{_limit_text(view)}: its ranks {view.exit_description}"
    return Stop(EndReason.TIME_LIMIT, why, stops_ranks=view.is_script)


def on_limit_unjoined(view: JobView, now: datetime) -> Stop | None:
    """The decision about a job at its limit that takes no step yet, or whose ranks have all been told to end: there is nothing to save.
    Ranks from an earlier generation do have something to save: they join first."""
    if (
        not _is_over(view, now)
        or view.may_have_joined(now)
        or (not view.generation_ended and any(rank.process_kept for rank in view.ranks))
    ):
        return None
    return Stop(EndReason.TIME_LIMIT, f"{_limit_text(view)}, and was not at work", stops_ranks=True)


def on_limit_in_change(view: JobView, now: datetime, patience: float) -> Stop | None:
    """The decision about a job that changes its members at its limit: they have `patience` seconds to do so, and would save then."""
    if not _is_over(view, now, patience) or view.may_have_joined(now):
        return None
    why = f"{_limit_text(view)}, and did not change its members within {patience:.0f} s of it"
    return Stop(EndReason.TIME_LIMIT, why, stops_ranks=True)


def could_not_save(what: str) -> Stop:
    """The decision about a job that failed to save at its limit: it ends all the same, with its newest checkpoint."""
    why = f"{what} while it saved at its time limit; its newest checkpoint is an older one"
    return Stop(EndReason.TIME_LIMIT, why, stops_ranks=True)


def _is_over(view: JobView, now: datetime, patience: float = 0.0) -> bool:
    return view.time_limit is not None and view.ran_seconds(now) >= view.time_limit + patience


def _limit_text(view: JobView) -> str:
    return f"it has run for {written_time(view.time_limit or 0)}, its time_limit"
