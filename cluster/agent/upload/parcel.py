"""The content of one upload, and the bytes that fit into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from paceline.cluster.agent.upload.records import Item, R
from paceline.monitoring.points import LogLine, MetricRecord, RankEvent

Stream = Literal["events", "metrics", "logs"]
AnyItem = Item[RankEvent] | Item[MetricRecord] | Item[LogLine]


class Budget:
    """The space that is left in an upload."""

    def __init__(self, records: int, bytes_: int) -> None:
        self.records = records
        self.bytes = bytes_

    def take(self, items: Sequence[Item[R]]) -> list[Item[R]]:
        """The leading items that fit."""
        taken: list[Item[R]] = []
        for item in items:
            if self.records < 1 or self.bytes < item.size:
                break
            self.records -= 1
            self.bytes -= item.size
            taken.append(item)
        return taken


class Parcel:
    """The records of one rank in one upload."""

    def __init__(self) -> None:
        self.events: list[Item[RankEvent]] = []
        self.metrics: list[Item[MetricRecord]] = []
        self.logs: list[Item[LogLine]] = []

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
