"""The rows of one table beyond a cursor, as ready frames of a stream. The table is the truth, the bus only nudges."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.services.history import log_pages
from paceline.api.services.lifecycle import events
from paceline.db.models.events import EventRow
from paceline.db.models.metrics import LogLineRow, MetricRecordRow
from paceline.db.models.readings import NodeReadingRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import logs as log_rows
from paceline.db.repositories import metrics as metric_rows
from paceline.db.repositories import readings as reading_rows
from paceline.db.repositories.readings import StoredReadings
from paceline.db.repositories.streams import Appended
from paceline.db.session import Database
from paceline.monitoring.packed import columns_of

Topic = Literal["metrics", "logs", "events", "readings"]


class Frame(NamedTuple):
    seq: int
    type: str
    data: Any


class EncodedFrame(NamedTuple):
    seq: int
    text: str


def encoded(topic: Topic, frame: Frame) -> EncodedFrame:
    document = {"seq": frame.seq, "topic": topic, "type": frame.type, "data": frame.data}
    return EncodedFrame(frame.seq, msgspec.json.encode(document).decode())


class StreamSource(Protocol):
    """The rows that a stream reads. Equal sources read the same rows."""

    def __hash__(self) -> int: ...

    @property
    def topic(self) -> Topic: ...

    @property
    def nudged_by(self) -> str: ...

    @property
    def owner(self) -> str | None:
        """The job or node whose rows alone are read; None: those of all."""

    @property
    def table(self) -> Appended: ...

    def database(self, services: Services) -> Database: ...

    async def newest(self, session: AsyncSession) -> int: ...

    async def after(self, session: AsyncSession, seq: int, limit: int) -> Sequence[Frame]: ...


@dataclass(frozen=True)
class MetricsSource:
    job_id: str
    topic: Topic = "metrics"
    table: Appended = MetricRecordRow

    @property
    def owner(self) -> str:
        return self.job_id

    @property
    def nudged_by(self) -> str:
        return bus.metrics(self.job_id)

    def database(self, services: Services) -> Database:
        return services.metrics

    async def newest(self, session: AsyncSession) -> int:
        return await metric_rows.newest_seq(session, self.job_id)

    async def after(self, session: AsyncSession, seq: int, limit: int) -> Sequence[Frame]:
        return [
            Frame(
                row.seq,
                "record",
                {
                    "rank": row.rank,
                    "generation": row.generation,
                    "step": row.step,
                    "time": row.time,
                    "values": msgspec.Raw(row.values.encode()),
                },
            )
            for row in await metric_rows.records_after(session, self.job_id, seq, limit)
        ]


@dataclass(frozen=True)
class LogsSource:
    job_id: str
    topic: Topic = "logs"
    table: Appended = LogLineRow

    @property
    def owner(self) -> str:
        return self.job_id

    @property
    def nudged_by(self) -> str:
        return bus.logs(self.job_id)

    def database(self, services: Services) -> Database:
        return services.metrics

    async def newest(self, session: AsyncSession) -> int:
        return await log_rows.newest_seq(session, self.job_id)

    async def after(self, session: AsyncSession, seq: int, limit: int) -> Sequence[Frame]:
        rows = await log_rows.page(session, self.job_id, after=seq, up_to=(1 << 63) - 1, limit=limit)
        return [Frame(row.seq, "line", log_pages.describe(row).model_dump(mode="json")) for row in rows]


@dataclass(frozen=True)
class EventsSource:
    """The source of every event, or of those of one job."""

    job_id: str | None = None
    topic: Topic = "events"
    nudged_by: str = bus.EVENTS
    table: Appended = EventRow

    @property
    def owner(self) -> str | None:
        return self.job_id

    def database(self, services: Services) -> Database:
        return services.control

    async def newest(self, session: AsyncSession) -> int:
        return await event_rows.newest_seq(session)

    async def after(self, session: AsyncSession, seq: int, limit: int) -> Sequence[Frame]:
        rows = await event_rows.after(session, seq, limit=limit, job_id=self.job_id)
        return [Frame(row.seq, "event", events.describe(row).model_dump(mode="json")) for row in rows]


@dataclass(frozen=True)
class ReadingsSource:
    """The source of the readings of every node, or of those of one."""

    node_id: str | None = None
    topic: Topic = "readings"
    nudged_by: str = bus.READINGS
    table: Appended = NodeReadingRow

    @property
    def owner(self) -> str | None:
        return self.node_id

    def database(self, services: Services) -> Database:
        return services.metrics

    async def newest(self, session: AsyncSession) -> int:
        return await reading_rows.newest_seq(session)

    async def after(self, session: AsyncSession, seq: int, limit: int) -> Sequence[Frame]:
        rows = await reading_rows.after(session, seq, limit, self.node_id)
        return await asyncio.to_thread(lambda: [_reading_frame(row) for row in rows])


def _reading_frame(row: StoredReadings) -> Frame:
    """The frame of a row. One that cannot be read is an empty frame, which moves the cursor all the same."""
    try:
        times, columns = columns_of(row.data)
    except ValueError:
        times, columns = [], {}
    return Frame(row.seq, "record", {"node_id": row.node_id, "times": times, "columns": columns})
