"""The roll-up plan of readings: how finely a moment of a node's past is known, and how long. Pure.

    buckets of   in one row   kept                                         1,000 cards on 125 nodes, a day
    1 s          5 s          PACELINE_KEEP_READINGS_HOURS (3)             0.5 GB in 3 hours
    10 s         10 min       a tenth of PACELINE_KEEP_READINGS_DAYS (3)   0.64 GB
    1 min        1 h          PACELINE_KEEP_READINGS_DAYS (30)             0.11 GB
    10 min       10 h         PACELINE_KEEP_CURVES_DAYS (365)              0.01 GB

A row has all of a node: a value costs its difference to the one before, not a row and its keys. A bucket has count, sum, minimum and maximum.
`tests/cluster/history/test_node_readings.py` computes the sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

#: Seconds of the buckets of each level of roll-ups, each a multiple of the one before.
READING_LEVELS = (10, 60, 600)
#: Buckets in a row of a roll-up.
ROW_BUCKETS = 60
#: Kinds of stored data (`stored_data.kind`), counted by node: raw seconds, and each level.
RAW_READINGS = "readings"
READING_KINDS = (RAW_READINGS, *(f"readings_{seconds}" for seconds in READING_LEVELS))
#: Bytes of a row in the database besides its document, indexes included.
READING_ROW_BYTES = 200


def reading_kind(seconds: int) -> str:
    """The kind under which buckets of so many seconds are counted."""
    return RAW_READINGS if seconds == 1 else f"readings_{seconds}"


def row_seconds(level: int) -> int:
    """Seconds that one row of a level covers."""
    return level * ROW_BUCKETS


@dataclass(frozen=True)
class KeepReadings:
    """How long readings are kept."""

    raw: timedelta
    fine: timedelta  # 10 s; 1 min ten times as long
    coarse: timedelta  # 10 min

    def age_of(self, seconds: int) -> timedelta:
        """How long buckets of so many seconds are kept."""
        return {1: self.raw, 10: self.fine, 60: 10 * self.fine}.get(seconds, self.coarse)


@dataclass(frozen=True)
class Resolution:
    """The stored level to read, and the seconds of the buckets to give: a multiple of it."""

    level: int
    seconds: int


def resolution(first: float, last: float, most: int, now: float, keep: KeepReadings) -> Resolution:
    """The finest resolution in which the times from `first` to `last` are still kept and make at most `most` buckets, which is 2 or more. `now` and times
    in seconds since the epoch."""
    span = max(last - first, 1.0)
    kept = [level for level in (1, *READING_LEVELS) if now - first <= keep.age_of(level).total_seconds()] or [READING_LEVELS[-1]]
    whole = max(most - 1, 1)  # its edges may cut two buckets: the span touches one more than it is long
    level = next((level for level in kept if span / level <= whole), kept[-1])
    return Resolution(level, level * math.ceil(span / level / whole))


#: Seconds of the buckets that go when the database is too large, in this order: what is known more coarsely as well.
EVICTABLE_READINGS = (1, *READING_LEVELS[:-1])
