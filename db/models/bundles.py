"""Bundles: the code that jobs were submitted with, stored once per content. Contents are chunks in the *metrics* database, so that any
replica serves them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, MetricsBase, UtcDateTime


class BundleRow(ControlBase):
    """A bundle, offered or stored. It stays while a job names it."""

    __tablename__ = "bundles"

    digest: Mapped[str] = mapped_column(primary_key=True)
    bytes: Mapped[int] = mapped_column(BigInt)  # of the compressed file
    unpacked_bytes: Mapped[int] = mapped_column(BigInt)
    files: Mapped[int]
    created_by: Mapped[str]  # a name, for people
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    offered_at: Mapped[datetime] = mapped_column(UtcDateTime)  # the last time: somebody is about to submit a job with it
    stored_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # None: still arriving


class BundleChunkRow(MetricsBase):
    __tablename__ = "bundle_chunks"

    digest: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    data: Mapped[bytes] = mapped_column(LargeBinary)
