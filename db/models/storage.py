"""The amount of stored data of each job, its arrival, and the jobs whose data is to be deleted: the basis of retention."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, false
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, MetricsBase, UtcDateTime


class StoredDataRow(MetricsBase):
    """The amount of one kind of data (`cluster.history.storage.Kind`) that is stored of one job. It moves in the transaction that stores or
    deletes.

    `bytes` is an estimate of the space in the database, indexes included. The row outlives the data: it tells what has gone."""

    __tablename__ = "stored_data"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    rows: Mapped[int] = mapped_column(BigInt, default=0)
    bytes: Mapped[int] = mapped_column(BigInt, default=0)
    changed_at: Mapped[datetime] = mapped_column(UtcDateTime)  # something was added last
    gone_rows: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")
    gone_to_step: Mapped[int | None] = mapped_column(BigInt)  # the highest step of which something was deleted
    told_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # the job's history said so last

    __table_args__ = (Index(None, "kind", "changed_at"),)


class ArrivalMarkRow(MetricsBase):
    """The end of the append-only tables at one moment: rows with a lower `seq` are older. The clocks of ranks are not used."""

    __tablename__ = "arrival_marks"

    time: Mapped[datetime] = mapped_column(UtcDateTime, primary_key=True)
    points: Mapped[int] = mapped_column(BigInt)
    lines: Mapped[int] = mapped_column(BigInt)
    events: Mapped[int] = mapped_column(BigInt)


class DataRemovalRow(ControlBase):
    """A request to delete the data of an ended job. The row stays: it names the user, and holds for data that arrives late."""

    __tablename__ = "data_removals"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    asked_by: Mapped[str]
    asked_at: Mapped[datetime] = mapped_column(UtcDateTime)
    checkpoints: Mapped[bool] = mapped_column(default=False, server_default=false())
    done_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    bytes: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")  # deleted so far

    __table_args__ = (Index(None, "done_at"),)
