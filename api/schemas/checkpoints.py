"""Checkpoints: committed, verified, pinned, deleted."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import AnyFloat, Schema, Timestamp
from paceline.cluster.states import CheckpointState, JobState


class CheckpointUser(Schema):
    job_id: str
    job_name: str


class Checkpoint(Schema):
    id: str
    job_id: str
    step: int
    generation: int
    state: CheckpointState
    directory: str
    bytes: int
    manifest_sha256: str
    parameters_sha256: str | None = Field(description="of parameters and buffers, the same whatever world saved them")
    metrics: dict[str, AnyFloat]
    stall_seconds: float | None = Field(description="that training waited for it; null where no rank lived to report what it cost")
    write_seconds: float | None = Field(description="until the slowest rank had its part on disk, hashed")
    slowdown: float | None = Field(
        description="how many times as long steps took while it was written; null where none did, or none to compare"
    )
    best: bool = Field(description="the best of its job by the policy's metric")
    latest: bool
    pinned: bool
    deleted_next: bool = Field(description="what retention would delete when the next one is saved")
    used_by: list[CheckpointUser] = Field(description="jobs that were started from it and have not ended")
    damage: str | None = None
    created_at: Timestamp


class CheckpointFile(Schema):
    name: str
    bytes: int
    sha256: str


class CheckpointFiles(Schema):
    """The files of a checkpoint, and whether they can be downloaded from this coordinator."""

    readable: bool = Field(description="the coordinator's machine sees its folder")
    reason: str | None = Field(description="why not, and the way out")
    files: list[CheckpointFile]
    weights: bool = Field(description="its weights can be had as safetensors")
    weights_reason: str | None = Field(description="why not, and the way out")


class ListedCheckpoint(Checkpoint):
    """A checkpoint in the list over all jobs, with what one needs to know of its job."""

    job_name: str
    job_state: JobState
    created_by: str
    created_by_id: str | None = Field(description="the user whose job it is; null: nobody's but the admins'")


class RestoreRequest(Schema):
    name: str | None = Field(None, description="of the new job; default: the old name with -restored")
    steps: int | None = Field(None, ge=1, description="train to this many steps, without pausing; default: as the spec says")
    in_place: bool = Field(
        False, description="set the checkpoint's own job back to it, where that is paused or has ended, in place of a new job"
    )
