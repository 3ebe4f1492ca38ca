"""How long something has been waited for, by a coordinator that may have been away. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

#: No step of a loop takes so long: a moment that is further ahead is from before the clock was set back.
AHEAD = timedelta(seconds=60)


def waited(since: datetime, up_since: datetime | None, now: datetime) -> timedelta:
    """How long a report has been waited for since a moment. Only the time counts in which the coordinator could hear it.

    `up_since`: it has been up without a break since then; None: since before that moment."""
    if up_since is None:
        return now - since
    return now - (up_since if since - now > AHEAD else max(since, up_since))
