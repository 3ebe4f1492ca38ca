"""Roll-ups of one metric of many ranks at once, a row per rank: an answer of a hundred thousand buckets in tens of milliseconds.

The database puts each rank's buckets into arrays (JSON on SQLite), so that Python sees a thousand rows instead of a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, cast

import msgspec
from sqlalchemy import ARRAY, ColumnElement, Integer, any_, bindparam, case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import is_postgres
from paceline.db.models.metrics import MetricRollupRow
from paceline.monitoring.rollup import SUM_LIMIT

_numbers = msgspec.json.Decoder(list[float])


class Statistic(StrEnum):
    MEAN = "mean"
    MAXIMUM = "maximum"


class RankSeries(NamedTuple):
    """Buckets of one rank in the order of the table; a bucket stands once for each generation that has steps in it.

    `values` are sums for MEAN, and maxima for MAXIMUM; `counts` are the points without NaN in each.
    """

    rank: int
    numbers: Sequence[float]
    values: Sequence[float]
    counts: Sequence[float]


async def read(
    session: AsyncSession, job_id: str, name: str, ranks: Sequence[int], level: int, numbers: range, statistic: Statistic
) -> list[RankSeries]:
    """The stored buckets `numbers` of a metric at one level. Infinite maxima are told as SUM_LIMIT, which JSON can hold."""
    table = MetricRollupRow
    value: Any = table.sum if statistic is Statistic.MEAN else _finite(table.maximum)
    gather = func.array_agg if is_postgres(session) else func.json_group_array
    query = (
        select(table.rank, gather(table.bucket), gather(value), gather(table.count - table.nan_count))
        .where(
            table.job_id == job_id,
            table.name == name,
            _is_one_of(session, table.rank, ranks),
            table.level == level,
            table.bucket.between(numbers[0], numbers[-1]),
            table.count > table.nan_count,
        )
        .group_by(table.rank)
    )
    rows = (await session.execute(query)).all()
    if is_postgres(session):
        return [RankSeries(*row) for row in rows]
    shared: dict[str, list[float]] = {}  # most ranks have the same buckets, and as many points in them

    def decoded(column: str) -> list[float]:
        found = shared.get(column)
        if found is None:
            found = shared[column] = _numbers.decode(column)
        return found

    return [RankSeries(rank, decoded(numbers), _numbers.decode(values), decoded(counts)) for rank, numbers, values, counts in rows]


def _is_one_of(session: AsyncSession, column: Any, chosen: Sequence[int]) -> ColumnElement[bool]:
    """One parameter, whatever is chosen: a thousand of them take longer to be bound than the smaller reads take."""
    if is_postgres(session):
        return cast("ColumnElement[bool]", column == any_(bindparam(None, list(chosen), type_=ARRAY(Integer))))
    each = func.json_each(msgspec.json.encode(list(chosen)).decode()).table_valued("value")
    return cast("ColumnElement[bool]", column.in_(select(each.c.value)))


def _finite(column: Any) -> ColumnElement[Any]:
    return case((column > SUM_LIMIT, SUM_LIMIT), (column < -SUM_LIMIT, -SUM_LIMIT), else_=column)
