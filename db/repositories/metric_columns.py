"""The columns of points and roll-ups that queries read: plain columns, never whole ORM objects."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.metrics import MetricRecordRow, MetricRollupRow
from paceline.monitoring.rollup import Bucket


class RecordColumns(NamedTuple):
    seq: int
    rank: int
    generation: int
    step: int
    time: float
    values: str


class StoredBucket(NamedTuple):
    name: str
    rank: int
    generation: int
    number: int
    bucket: Bucket


#: To be narrowed down with `where`, and read with `records` and `buckets`.
RECORDS: Select[Any] = select(*(getattr(MetricRecordRow, name) for name in RecordColumns._fields))
BUCKETS: Select[Any] = select(
    MetricRollupRow.name,
    MetricRollupRow.rank,
    MetricRollupRow.generation,
    MetricRollupRow.bucket,
    *(getattr(MetricRollupRow, field.name) for field in fields(Bucket)),
)


async def records(session: AsyncSession, query: Select[Any]) -> list[RecordColumns]:
    return [RecordColumns(*row) for row in await session.execute(query)]


async def buckets(session: AsyncSession, query: Select[Any]) -> list[StoredBucket]:
    found = await session.execute(query)
    return [StoredBucket(name, rank, generation, number, Bucket(*rest)) for name, rank, generation, number, *rest in found]
