"""The `checkpoint` section: when a job saves, where, and how many checkpoints are kept. Pure pydantic."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from paceline.objects.location import ObjectLocation, place_at
from paceline.training.schema.object_store import ObjectStoreOptions, check_place
from paceline.training.schema.parts import Part, Path, PositiveInt, Text, Whole, absent, inconsistent


class CheckpointPolicy(Part):
    every_steps: PositiveInt | None = Field(100, description="Steps between checkpoints. Null: only at the end and on pause.")
    keep_last: Whole = Field(3, ge=1, le=1000)
    keep_best: Whole = Field(1, ge=0, le=100)
    metric: Text = Field("eval_loss", max_length=200, description="Evaluation result that decides which checkpoint is the best one.")
    mode: Literal["min", "max"] = "min"
    directory: Path | None = Field(
        None,
        description="Absolute path on storage that every node of the job sees, or a place in an object store: s3://BUCKET/PREFIX, gs://, az://. "
        "Default: the agents' own folder.",
    )
    shared: bool | None = Field(
        None,
        description="Set to true where `directory` is one folder on all nodes although they do not tell so: it lies behind a link, or one of them exports it.",
        exclude_if=absent,
    )
    options: ObjectStoreOptions | None = Field(
        None, description="Set where the object store is. Credentials come from the nodes' environment, never from here.", exclude_if=absent
    )
    asynchronous: bool = Field(
        True, description="Write checkpoints during training, from a copy in the host's memory. False: training waits for each write."
    )

    @model_validator(mode="after")
    def check_directory(self) -> CheckpointPolicy:
        check_place("checkpoint.directory", self.directory, self.options)
        if self.shared is not None and (self.directory is None or isinstance(place_at(self.directory), ObjectLocation)):
            raise inconsistent(
                "checkpoint.shared says that checkpoint.directory is one folder on all nodes, and that names no folder; leave it out, or name one"
            )
        return self
