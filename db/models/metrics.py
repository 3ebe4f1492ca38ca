"""Raw points, their roll-ups, and log lines: the *metrics* database. Times are seconds since the epoch, as ranks send them."""

from __future__ import annotations

from sqlalchemy import Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, MetricsBase


class MetricRecordRow(MetricsBase):
    """The values of one rank at one step; `seq` is the metrics stream's cursor. `values` is JSON text, NaN as a string."""

    __tablename__ = "metric_records"

    seq: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    job_id: Mapped[str]
    generation: Mapped[int] = mapped_column(BigInt)
    rank: Mapped[int]
    step: Mapped[int] = mapped_column(BigInt)
    time: Mapped[float]
    values: Mapped[str] = mapped_column(Text)

    __table_args__ = (Index(None, "job_id", "rank", "step"), Index(None, "job_id", "seq"), {"sqlite_autoincrement": True})


class MetricRollupRow(MetricsBase):
    """The steps [bucket * level, (bucket + 1) * level) of one metric. Null: only NaN was seen (SQLite cannot store NaN)."""

    __tablename__ = "metric_rollups"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    level: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    bucket: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    count: Mapped[int] = mapped_column(BigInt)
    nan_count: Mapped[int] = mapped_column(BigInt)
    minimum: Mapped[float | None]
    maximum: Mapped[float | None]
    sum: Mapped[float]
    last: Mapped[float | None]
    last_step: Mapped[int] = mapped_column(BigInt)
    last_time: Mapped[float]

    __table_args__ = ({"sqlite_with_rowid": False},)


class MetricNameRow(MetricsBase):
    __tablename__ = "metric_names"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)


class LogLineRow(MetricsBase):
    __tablename__ = "log_lines"

    seq: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    job_id: Mapped[str]
    generation: Mapped[int] = mapped_column(BigInt)
    rank: Mapped[int]
    time: Mapped[float]
    level: Mapped[str]
    text: Mapped[str] = mapped_column(Text)

    __table_args__ = (Index(None, "job_id", "seq"), {"sqlite_autoincrement": True})


class StreamMarkRow(MetricsBase):
    """The highest seq stored of one rank's stream: moved in the transaction that stores, so nothing is stored twice."""

    __tablename__ = "stream_marks"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stream: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(BigInt)


class RollupMarkRow(MetricsBase):
    """The mark up to which `metric_records.seq` the points of one rank are in the roll-ups: moved in the transaction that puts them there.

    The row of EVERY_RANK holds for all ranks of all jobs; a rank has a row of its own only while a refresh is under way, and it is the
    higher one that counts. `seq` grows in the order of arrival, so a point of an earlier step that comes late lies beyond the mark as well."""

    __tablename__ = "rollup_marks"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(BigInt)
