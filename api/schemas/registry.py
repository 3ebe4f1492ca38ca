"""Registered models: versions that are checkpoints or files of jobs, and aliases that move."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from paceline.api.schemas.common import AnyFloat, Schema, Timestamp
from paceline.training.schema.spelling import SpellingRule

_REST = "1 to 64 letters, digits, '.', '_' and '-'; the first one is a letter"
ModelName = Annotated[str, SpellingRule(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", f"{_REST} or digit", "gpt-small")]
AliasName = Annotated[str, SpellingRule(r"^[A-Za-z][A-Za-z0-9._-]{0,63}$", _REST, "production")]


class RegisterVersion(Schema):
    """A new version of a model, which is made if there is none of this name: of a checkpoint, or of a file that a job has left."""

    name: ModelName
    checkpoint_id: str | None = None
    job_id: str | None = Field(None, description="with `path`: the job that has left the file")
    path: str | None = Field(None, max_length=2000, description="of the file in the job's artifacts")
    notes: str = Field("", max_length=4000)
    aliases: tuple[AliasName, ...] = Field((), max_length=10, description="to move to it")

    @model_validator(mode="after")
    def _names_one_source(self) -> RegisterVersion:
        if (self.checkpoint_id is None) == (self.path is None) or (self.path is None) != (self.job_id is None):
            raise ValueError("name either checkpoint_id, or job_id and path of a file")
        return self


class MoveAlias(Schema):
    version: int = Field(ge=1)


class ModelVersion(Schema):
    model: str
    number: int
    job_id: str
    job_name: str
    checkpoint_id: str | None
    path: str | None = Field(description="of the file in the job's artifacts, where it is no checkpoint")
    step: int | None
    bytes: int
    sha256: str = Field(description="of the file, or of the checkpoint's manifest")
    metrics: dict[str, AnyFloat] = Field(description="of the checkpoint's step")
    notes: str
    aliases: list[str]
    download: str = Field(description="address of its content: add format=safetensors for the weights of a checkpoint")
    created_by: str
    created_at: Timestamp


class RegisteredModel(Schema):
    name: str
    versions: list[ModelVersion] = Field(description="the newest first")
    created_by: str
    created_at: Timestamp
