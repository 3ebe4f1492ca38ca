"""The files that a job leaves for download, and the requests for them. Contents are chunks in the *metrics* database, so that any
replica serves them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, JsonDocument, MetricsBase, UtcDateTime, new_id


class ProfileRequestRow(ControlBase):
    """A request for profiler traces. It belongs to one generation and ends with it, answered or not."""

    __tablename__ = "profile_requests"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    generation: Mapped[int] = mapped_column(BigInt)
    steps: Mapped[int]
    ranks: Mapped[list[int]] = mapped_column(JsonDocument)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "job_id", "id"),)


class GradientsRequestRow(ControlBase):
    """A request for gradients of one step, of all ranks. It belongs to one generation and ends with it, answered or not."""

    __tablename__ = "gradients_requests"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    generation: Mapped[int] = mapped_column(BigInt)
    world_size: Mapped[int]
    names: Mapped[list[str]] = mapped_column(JsonDocument)
    snapshots: Mapped[bool]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "job_id", "id"),)


class ArtifactRow(ControlBase):
    """A file for download. `error`: why there is no file. `stored_at`: since when all of it is stored.

    Of kind `file` it is one version of a file in $PACELINE_ARTIFACTS: `name` is its key, `path` says where it is in the job, `folder` is the
    path without the last part, `changed_ns` when its node saw it change, by the coordinator's clock. Of kind `model` it
    was replaced by a newer version, and a registered model is made of it. Of kind `limit` it is no file, but says once that a limit was passed."""

    __tablename__ = "artifacts"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    generation: Mapped[int] = mapped_column(BigInt)
    rank: Mapped[int]
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    name: Mapped[str]
    kind: Mapped[str]
    request_id: Mapped[str | None]
    first_step: Mapped[int] = mapped_column(BigInt)
    last_step: Mapped[int] = mapped_column(BigInt)
    bytes: Mapped[int] = mapped_column(BigInt)
    sha256: Mapped[str]
    error: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    stored_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    path: Mapped[str | None]
    folder: Mapped[str | None]
    changed_ns: Mapped[int | None] = mapped_column(BigInt)
    held: Mapped[bool] = mapped_column(default=False, server_default=false())  # a version of a model is made of it
    media_key: Mapped[str | None]  # of the kind `media`: under which name it was logged, what it is, and how many
    media_kind: Mapped[str | None]
    media_count: Mapped[int | None] = mapped_column(BigInt)

    __table_args__ = (
        UniqueConstraint("job_id", "generation", "rank", "name"),
        Index(None, "job_id", "id"),
        Index(None, "job_id", "folder", "path"),
        Index(None, "job_id", "path"),
        Index(None, "job_id", "media_key", "first_step"),
    )


class ArtifactChunkRow(MetricsBase):
    __tablename__ = "artifact_chunks"

    artifact_id: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    data: Mapped[bytes] = mapped_column(LargeBinary)
