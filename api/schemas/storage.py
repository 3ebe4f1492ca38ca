"""The stored data of jobs, the space it takes, and the deleted part."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp


class DataRemoval(Schema):
    """The data of an ended job is deleted; the job itself stays."""

    job_id: str
    state: Literal["removing", "removed"]
    asked_by: str
    asked_at: Timestamp
    checkpoints: bool = Field(description="its checkpoints as well; else they follow the job's checkpoint policy")
    removed_at: Timestamp | None
    removed_bytes: int = Field(description="so far, of the database; checkpoints lie elsewhere")


class StoredKind(Schema):
    kind: Literal["points", "curves", "lines", "readings", "traces", "files"]
    rows: int
    bytes: int = Field(description="in the database, indexes included: an estimate")


class StoredJob(Schema):
    job_id: str
    name: str
    state: str
    bytes: int = Field(description="points, curves and log lines")
    ended: bool = Field(description="its data can be deleted")


class DiskState(Schema):
    free_bytes: int
    total_bytes: int
    low_bytes: int = Field(description="the watermark: below it points, log lines and files wait on their nodes")
    low: bool


class Storage(Schema):
    kinds: list[StoredKind]
    stored_bytes: int = Field(description="points, curves, log lines and readings: what the limit counts")
    limit_bytes: int | None = Field(description="null: no limit")
    database_bytes: int = Field(description="what the metrics database takes on disk")
    free_in_database_bytes: int = Field(description="of that, free for new rows; 0 on PostgreSQL, which does not tell")
    shrinks: bool = Field(description="free space goes back to the disk; PostgreSQL sees to that itself")
    hint: str | None = Field(description="what to do about it where not")
    disk: DiskState | None = Field(description="under the coordinator's databases; null with PostgreSQL, whose disk it does not see")
    policy: list[str] = Field(description="what is kept, in sentences, with the names of the settings")
    largest_jobs: list[StoredJob]
