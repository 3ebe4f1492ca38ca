"""The `checkpoint` section: when a job saves, where, and how many checkpoints are kept. Pure pydantic."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, model_validator

from paceline.training.schema.parts import Part, Path, PositiveInt, Text, Whole, inconsistent


class CheckpointPolicy(Part):
    every_steps: PositiveInt | None = Field(100, description="null: only at the end and on pause")
    keep_last: Whole = Field(3, ge=1, le=1000)
    keep_best: Whole = Field(1, ge=0, le=100)
    metric: Text = Field("eval_loss", max_length=200, description="what best means")
    mode: Literal["min", "max"] = "min"
    directory: Path | None = Field(None, description="absolute path that every node of the job sees; default: the agents' own")
    asynchronous: bool = Field(
        True, description="training goes on while a checkpoint is written, from a copy in the host's memory; false: it waits"
    )

    @model_validator(mode="after")
    def check_directory(self) -> CheckpointPolicy:
        if self.directory is not None and not PurePosixPath(self.directory).is_absolute():
            raise inconsistent("checkpoint.directory={path} is not an absolute path", path=self.directory)
        return self
