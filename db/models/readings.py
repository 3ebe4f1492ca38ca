"""Readings of nodes and their cards: the *metrics* database. Values are packed (`monitoring.packed`), all of a node in one document."""

from __future__ import annotations

from sqlalchemy import Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, MetricsBase


class NodeReadingRow(MetricsBase):
    """A few seconds of readings of one node; `seq` is the cluster stream's cursor. Times are seconds since the epoch, on the node's clock."""

    __tablename__ = "node_readings"

    seq: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    node_id: Mapped[str]
    first_time: Mapped[float]
    last_time: Mapped[float]
    data: Mapped[bytes] = mapped_column(LargeBinary)

    __table_args__ = (
        Index(None, "node_id", "seq"),
        Index(None, "node_id", "last_time"),
        Index(None, "last_time"),
        {"sqlite_autoincrement": True},
    )


class NodeReadingRollupRow(MetricsBase):
    """The readings of one node in buckets of `seconds`, from `start` on: as many buckets as `cluster.history.node_readings` says."""

    __tablename__ = "node_reading_rollups"

    node_id: Mapped[str] = mapped_column(primary_key=True)
    seconds: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    start: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    data: Mapped[bytes] = mapped_column(LargeBinary)

    __table_args__ = (Index(None, "seconds", "start"),)
