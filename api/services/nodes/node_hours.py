"""Counts the hours for which nodes of a pool ran in a calendar month (UTC). Pure.

They are added up look by look: the nodes that run now are taken to have run since the last look, also where no coordinator looked for a while. A
pool's owner pays for them in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

HOUR_SECONDS = 3600.0


@dataclass(frozen=True)
class NodeHours:
    """Node-hours of one month, counted up to a moment (Unix time)."""

    month: str
    hours: float
    counted_to: float

    @classmethod
    def stored(cls, document: Mapping[str, Any] | None, now: datetime) -> NodeHours:
        """The count of the month of `now`; it begins anew in each month, and now where nothing was counted."""
        month = f"{now:%Y-%m}"
        if document is None:
            return cls(month, 0.0, now.timestamp())
        known = cls(document["month"], document["hours"], document["counted_to"])
        if known.month == month:
            return known
        start = datetime(now.year, now.month, 1, tzinfo=UTC).timestamp()
        return cls(month, 0.0, max(start, known.counted_to))

    def counted(self, nodes: int, now: datetime) -> NodeHours:
        """The count up to `now`, with so many nodes since the last look."""
        seconds = max(0.0, now.timestamp() - self.counted_to)
        return NodeHours(self.month, self.hours + nodes * seconds / HOUR_SECONDS, max(self.counted_to, now.timestamp()))

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self)
