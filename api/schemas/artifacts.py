"""Files that a job leaves for download, and requests for them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.training.schema.profile_window import MOST_RANKS, MOST_STEPS, RankNumber


class Artifact(Schema):
    id: str
    job_id: str
    generation: int
    rank: int
    kind: str = Field(
        description="trace: of torch.profiler, in Chrome's format, for https://ui.perfetto.dev or chrome://tracing; gradients: a rank's record of "
        "a step, which `gradients/{step}` reads; snapshot: its gradients by name, as torch.save writes them; file: left in $PACELINE_ARTIFACTS"
    )
    name: str = Field(description="of the file")
    first_step: int
    last_step: int
    bytes: int
    sha256: str
    state: Literal["arriving", "ready", "failed"]
    error: str | None = Field(None, description="why there is no file")
    request_id: str | None = Field(description="of the request for it while the job runs; null: the job's spec asked for it")
    path: str | None = Field(None, description="of a file in $PACELINE_ARTIFACTS: where `files` has it")
    created_at: Timestamp


class LeftFile(Schema):
    """A file that a rank left in $PACELINE_ARTIFACTS; of each path the newest version is kept."""

    id: str
    path: str = Field(description="in the job, the folder of the rank first: rank0/eval/scores.csv")
    name: str
    rank: int
    generation: int = Field(description="in which the rank's process started")
    bytes: int
    sha256: str
    media_type: str = Field(description="as the content is served; never one that a browser would run")
    changed_at: Timestamp = Field(description="on its node")
    stored_at: Timestamp


class LeftFolder(Schema):
    """A folder, with all that is below it."""

    path: str
    name: str
    files: int
    bytes: int
    changed_at: Timestamp


class FileLimits(Schema):
    """The limits of the files of a job."""

    file_bytes: int
    job_bytes: int
    job_files: int


class FolderPage(Schema):
    """One folder of a job's files: its folders, and a page of its files."""

    prefix: str
    files: int = Field(description="in it and in all folders below it")
    bytes: int
    folders: list[LeftFolder]
    items: list[LeftFile] = Field(description="files directly in it, by path")
    next_cursor: str | None
    arriving: int = Field(description="files of the job that are on their way")
    not_kept: list[str] = Field(description="what is told of limits that the job's files have passed")
    limits: FileLimits


class ProfileOrder(Schema):
    steps: int = Field(3, ge=1, le=MOST_STEPS, description="how many, from the second step after the ranks hear of it")
    ranks: tuple[RankNumber, ...] = Field((0,), min_length=1, max_length=MOST_RANKS)


class ProfileRequest(Schema):
    """A trace that was asked for while the job runs. It belongs to one generation, and ends with it."""

    id: str
    job_id: str
    generation: int
    steps: int
    ranks: list[int]
    answered: list[int] = Field(description="ranks that have answered, with a trace or with the reason why there is none")
    state: Literal["open", "done", "missed"] = Field(description="missed: its generation ended before every rank had answered")
    created_by: str
    created_at: Timestamp
