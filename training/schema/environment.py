"""The `environment` section: variables and working directory of a job's ranks. Pure pydantic."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field, model_validator

from paceline.training.schema.parts import Part, Path, at_most, inconsistent
from paceline.training.schema.script import Argument
from paceline.training.schema.spelling import Spelling

VariableName = Annotated[str, Spelling(r"^[A-Za-z_][A-Za-z0-9_]*$", "letters, digits and '_', first no digit", "NCCL_DEBUG")]


class Environment(Part):
    variables: Annotated[dict[VariableName, Argument], at_most(1000)] = Field(default_factory=dict, max_length=1000)
    working_directory: Path | None = Field(None, description="absolute folder on the nodes; first on sys.path of the ranks")

    @model_validator(mode="after")
    def check_environment(self) -> Environment:
        if self.working_directory is not None and not PurePosixPath(self.working_directory).is_absolute():
            raise inconsistent("environment.working_directory={path} is not an absolute path", path=self.working_directory)
        reserved = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & set(self.variables)
        if reserved:
            raise inconsistent(
                "environment.variables sets {names}, which Paceline itself sets for each rank", names=", ".join(sorted(reserved))
            )
        return self
