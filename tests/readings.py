"""Readings for tests: as an agent would have sent them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.api.core.context import Services
from paceline.api.services.ingest.readings import ReadingsWriter
from paceline.monitoring.readings import NodeReadings, Reading, record_of

RECORD_READINGS = 5
Columns = Mapping[str, Mapping[str, Sequence[float]]]


async def store(services: Services, node_id: str, start: float, columns: Columns, *, spool: int | None = None) -> None:
    """Store one reading a second of a node from `start` on: `columns` by subject and metric, all of the same length."""
    seconds = len(next(iter(next(iter(columns.values())).values())))
    every = [
        Reading(start + second, {subject: {name: values[second] for name, values in each.items()} for subject, each in columns.items()})
        for second in range(seconds)
    ]
    groups = [every[first : first + RECORD_READINGS] for first in range(0, seconds, RECORD_READINGS)]
    records = [record_of(number, group) for number, group in enumerate(groups, start=1)]
    writer = ReadingsWriter(services)
    async with writer.running():
        await writer.store(node_id, NodeReadings(spool=int(start) if spool is None else spool, records=records))
