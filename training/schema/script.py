"""The `script` section: a program that its user brings, started once for each rank with torchrun's variables. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from paceline.training.schema.amounts import LONGEST_GRACE_SECONDS, Grace
from paceline.training.schema.parts import Part, Path, Text, inconsistent
from paceline.training.schema.spelling import SpellingRule

MOST_ARGUMENTS = 1000
#: As torchrun (`--shutdown-timeout`), Slurm (`KillWait`) and Kubernetes have it.
GRACE_SECONDS = 30
#: The grace of ranks that run no script: they save when they are asked to, and have nothing to do at SIGTERM.
OWN_GRACE_SECONDS = 3
#: Files that a shell runs, not Python.
_OF_A_SHELL = frozenset({".sh", ".bash", ".zsh", ".slurm", ".sbatch"})


def as_typed(value: Any) -> Any:
    """A number, true or false as text: command lines and environments have nothing else. Of YAML, `training.spec.text` keeps the spelling."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


@dataclass(frozen=True)
class CommandLine:
    """For `Annotated` behind arguments: they may be given as one text too, which is taken apart as a shell would."""

    def read(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return shlex.split(value)
        except ValueError as error:
            raise inconsistent("script.command={value} cannot be taken apart: {why}", value=value, why=str(error)) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string"}]}


Argument = Annotated[Text, BeforeValidator(as_typed)]
Arguments = Annotated[tuple[Argument, ...], Field(fail_fast=True)]
ModuleName = Annotated[
    str, SpellingRule(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", "the name of a Python module, as package.module", "my_project.train")
]


class Script(Part):
    """A program for torchrun, in one of three forms: a Python file, a module as in `python -m`, or any command. Each rank is a process of it;
    all are started again when one fails."""

    path: Path | None = Field(
        None, min_length=1, description="Python file on the nodes, absolute or relative to environment.working_directory."
    )
    module: ModuleName | None = Field(None, description="Python module, as in `python -m`. Found from environment.working_directory.")
    command: Annotated[Arguments, Field(min_length=1, max_length=MOST_ARGUMENTS), CommandLine()] | None = Field(
        None, description="Program and its arguments, as a list or one text. No shell reads it; for a shell write bash -c '...'."
    )
    args: Arguments = Field((), max_length=MOST_ARGUMENTS, description="Arguments of path or module. Numbers are passed on as typed.")
    grace_seconds: Grace = Field(
        GRACE_SECONDS,
        description="Time between SIGTERM and SIGKILL when Paceline ends the ranks, to save and exit. In seconds, or as 2m.",
    )

    saves_on_sigterm: bool = Field(
        False, description="Set if the ranks save on SIGTERM and continue from there when started again. The job can then be paused."
    )

    virtual_local_rank: bool = Field(
        False,
        description="Show each rank only its own GPU, as cuda:0 with LOCAL_RANK 0 (torchrun's --virtual-local-rank). False: a rank sees "
        "the GPUs of all ranks beside it, and LOCAL_RANK is the index of its own.",
    )

    @model_validator(mode="after")
    def check_program(self) -> Script:
        given = [name for name in ("path", "module", "command") if getattr(self, name) is not None]
        if len(given) != 1:
            raise inconsistent(
                "give exactly one of script.path, script.module and script.command; got {given}", given=", ".join(given) or "none"
            )
        if self.command is not None and self.args:
            raise inconsistent("script.args are for path and module: write them into script.command")
        if self.command is not None and not self.command[0]:
            raise inconsistent("script.command begins with an empty text; begin with the program")
        if self.path is not None and PurePosixPath(self.path).suffix in _OF_A_SHELL:
            raise inconsistent("script.path={path} would be run by Python; use script.command: [bash, {path}]", path=self.path)
        return self

    def program(self, python: str) -> tuple[str, ...]:
        """The command line. `python` is the interpreter for path and module; its output is not buffered."""
        if self.command is not None:
            return self.command
        target = (self.path,) if self.path is not None else ("-m", self.module or "")
        return (python, "-u", *target, *self.args)


def grace_of(stored: Mapping[str, Any]) -> float:
    """How many seconds the ranks of a job have between SIGTERM and SIGKILL. `stored`: its spec as it was submitted, whether or not all of it can
    be read."""
    script = stored.get("script")
    if not isinstance(script, Mapping):
        return OWN_GRACE_SECONDS
    given = script.get("grace_seconds")
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= LONGEST_GRACE_SECONDS:
        return float(given)
    return GRACE_SECONDS
