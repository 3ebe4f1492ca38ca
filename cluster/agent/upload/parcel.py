"""The content of one upload, and the bytes that fit into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from paceline.cluster.agent.upload.records import R, SpoolItem
from paceline.monitoring.points import LogLine, MetricRecord, RankEvent

Stream = Literal["events", "metrics", "logs"]
AnyItem = SpoolItem[RankEvent] | SpoolItem[MetricRecord] | SpoolItem[LogLine]


class Budget:
    """The space that is left in an upload, for `ranks` that have yet to take theirs: each may take an equal share of it. What a rank leaves is there for
    those after it, so those with the least come first."""

    def __init__(self, records: int, bytes_: int, ranks: int = 1) -> None:
        self.records = records
        self.bytes = bytes_
        self._ranks = max(1, ranks)

    @property
    def share(self) -> int:
        """The most records that the next rank may take."""
        return min(self.records, max(1, self.records // self._ranks))

    def take(self, items: Sequence[SpoolItem[R]]) -> list[SpoolItem[R]]:
        """The leading items of the next rank that fit into its share: one at least, where the whole space has room for it."""
        taken: list[SpoolItem[R]] = []
        left = self.bytes // self._ranks
        for item in items[: self.share]:
            if item.size > (left if taken else self.bytes):
                break
            left -= item.size
            taken.append(item)
        self.records -= len(taken)
        self.bytes -= sum(item.size for item in taken)
        self._ranks = max(1, self._ranks - 1)
        return taken


class Parcel:
    """The records of one rank in one upload."""

    def __init__(self) -> None:
        self.events: list[SpoolItem[RankEvent]] = []
        self.metrics: list[SpoolItem[MetricRecord]] = []
        self.logs: list[SpoolItem[LogLine]] = []

    def is_empty(self) -> bool:
        return not (self.metrics or self.events or self.logs)

    def items(self) -> Iterator[tuple[Stream, AnyItem]]:
        """All items, events first: they must not wait for the rest."""
        yield from (("events", item) for item in self.events)
        yield from (("metrics", item) for item in self.metrics)
        yield from (("logs", item) for item in self.logs)

    def halves(self) -> list[Parcel]:
        """The parcel in two, in the order of sending; empty where there is only one item."""
        items = list(self.items())
        middle = len(items) // 2
        return [_parcel_of(items[:middle]), _parcel_of(items[middle:])] if middle else []


def _parcel_of(items: Sequence[tuple[Stream, AnyItem]]) -> Parcel:
    parcel = Parcel()
    for stream, item in items:
        getattr(parcel, stream).append(item)
    return parcel
