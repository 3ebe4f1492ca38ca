"""Counts the hours for which nodes of a pool ran in a calendar month (UTC). Pure.

They are added up look by look: the nodes that run now are taken to have run since the last look, also where no coordinator looked for a while. A
pool's owner pays for them in the same way. Each month has a count of its own: a clock that is in another month for a moment takes nothing away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

HOUR_SECONDS = 3600.0
#: Months whose counts are kept beside that of the present one.
OTHERS_KEPT = 3


@dataclass(frozen=True)
class NodeHours:
    """Node-hours of one month, counted up to a moment (Unix time)."""

    month: str
    hours: float
    counted_to: float
    others: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # `hours` and `counted_to` of other months

    @classmethod
    def stored(cls, document: Mapping[str, Any] | None, now: datetime) -> NodeHours:
        """The count of the month of `now`. A month begins with its first second where an earlier one was counted, and with `now` elsewhere."""
        month = f"{now:%Y-%m}"
        if document is None:
            return cls(month, 0.0, now.timestamp())
        known: dict[str, Any] = {
            **document.get("others", {}),
            document["month"]: {name: document[name] for name in ("hours", "counted_to")},
        }
        mine = known.pop(month, None)
        others = dict(sorted(known.items())[-OTHERS_KEPT:])
        if mine is not None:
            return cls(month, mine["hours"], mine["counted_to"], others)
        earlier = [each["counted_to"] for name, each in known.items() if name < month]
        start = datetime(now.year, now.month, 1, tzinfo=UTC).timestamp()
        return cls(month, 0.0, max(start, *earlier) if earlier else now.timestamp(), others)

    def counted(self, nodes: int, now: datetime) -> NodeHours:
        """The count up to `now`, with so many nodes since the last look."""
        seconds = max(0.0, now.timestamp() - self.counted_to)
        return replace(self, hours=self.hours + nodes * seconds / HOUR_SECONDS, counted_to=max(self.counted_to, now.timestamp()))

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self)
