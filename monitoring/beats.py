"""Waits of loops that look again and again: they end at common moments, so that a process with many such loops wakes up for all of them at once."""

from __future__ import annotations

#: The shortest wait, as a part of the period: a loop that ends its work just before a beat leaves that one out.
SHORTEST = 0.25


def until_beat(period: float, now: float) -> float:
    """Return the seconds until a whole multiple of `period` seconds, a quarter of it away or more. `now` is monotonic: all processes of a machine share
    that clock.

    Every wake-up takes a third of a millisecond from whatever computes on that core, however little there is to do. Periods that are halves,
    quarters or multiples of a second meet.
    """
    left = period - now % period
    return left if left >= SHORTEST * period else left + period
