"""Paces deliveries: when a failed one is tried again, and how many messages a channel gets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

#: Attempts at one message, over about an hour and a half.
MOST_ATTEMPTS = 8
FIRST_RETRY, RETRY_FACTOR, LONGEST_RETRY = timedelta(seconds=5), 3.0, timedelta(hours=1)
#: A server may ask for a longer wait than ours, up to this.
LONGEST_RETRY_AFTER = timedelta(hours=6)
JITTER = 0.2
#: A channel that fails rests as long as its message, and this long at most: one bad message does not hold up the others for an hour.
LONGEST_REST = timedelta(minutes=1)
#: A token bucket: so many messages at once, and then one for each interval.
MOST_AT_ONCE, ONE_EVERY = 10, timedelta(minutes=3)


def retry_delay(attempt: int, retry_after: float | None, chance: float) -> timedelta | None:
    """How long to wait after attempt number `attempt`, counted from 1, has failed; None: it was the last. `chance` is random, from 0 to 1;
    `retry_after` what the server asked for, in seconds."""
    if attempt >= MOST_ATTEMPTS:
        return None
    seconds = min(FIRST_RETRY.total_seconds() * RETRY_FACTOR ** (attempt - 1), LONGEST_RETRY.total_seconds())
    ours = timedelta(seconds=seconds * (1 - JITTER + 2 * JITTER * chance))
    asked = timedelta(seconds=min(max(0.0, retry_after or 0.0), LONGEST_RETRY_AFTER.total_seconds()))
    return max(ours, asked)


@dataclass(frozen=True)
class SendingPlan:
    """How many of the messages that wait go alone, how many together in a digest after them, and how many tokens are left. Where nothing
    can be sent, `wait` is the time until the next token."""

    alone: int
    together: int
    tokens: float
    wait: timedelta | None = None


def plan_messages(waiting: int, tokens: float, since: datetime, now: datetime) -> SendingPlan:
    """Plan for messages that wait for their first attempt, with the tokens that were left at `since`. The last token of a burst takes all
    that is left: a digest."""
    grown = min(float(MOST_AT_ONCE), tokens + max(0.0, (now - since) / ONE_EVERY))
    whole = int(grown + 1e-9)
    if waiting <= 0:
        return SendingPlan(0, 0, grown)
    if whole == 0:
        return SendingPlan(0, 0, grown, wait=(1 - grown) * ONE_EVERY)
    if waiting <= whole:
        return SendingPlan(waiting, 0, grown - waiting)
    return SendingPlan(whole - 1, waiting - whole + 1, grown - whole)
