"""A Dockerfile, read: its stages and their instructions, as far as ours uses the language. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template

#: Instructions that change a root or the environment of later ones, and those that only say how the image is run.
BUILDING = frozenset({"ARG", "COPY", "ENV", "RUN", "USER", "WORKDIR"})
RUNNING = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "VOLUME"})


class UnknownInstructionError(ValueError):
    """An instruction that is not understood here."""


@dataclass(frozen=True)
class Instruction:
    """One instruction, its lines joined. `word` is in capitals."""

    word: str
    rest: str


@dataclass(frozen=True)
class Stage:
    """One stage: the image or the earlier stage that it begins with, and what is done there."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Copy:
    """A COPY instruction: from an earlier stage, or from the build's context where `stage` is None."""

    stage: str | None
    sources: tuple[str, ...]
    target: str


@dataclass
class Dockerfile:
    defaults: dict[str, str] = field(default_factory=dict)  # of the arguments before the first stage
    stages: dict[str, Stage] = field(default_factory=dict)


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile, whose stages all have names. Raises UnknownInstructionError."""
    found, stage = Dockerfile(), None
    for instruction in instructions_of(text):
        if instruction.word == "FROM":
            base, _, name = instruction.rest.partition(" AS ")
            stage = Stage(name.strip(), Template(base.strip()).substitute(found.defaults), ())
        elif stage is None and instruction.word == "ARG":
            name, _, value = instruction.rest.partition("=")
            found.defaults[name] = value
            continue
        elif stage is None or instruction.word not in BUILDING | RUNNING:
            raise UnknownInstructionError(f"{instruction.word} {instruction.rest[:60]}: not understood here")
        else:
            stage = Stage(stage.name, stage.base, (*stage.instructions, instruction))
        found.stages[stage.name] = stage
    return found


def instructions_of(text: str) -> list[Instruction]:
    """Return all instructions; a line that ends with a backslash goes on in the next one, and comments between lines are left out."""
    whole, goes_on = list[str](), False
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        part = line.strip().removesuffix("\\").rstrip()
        if goes_on:
            whole[-1] += f" {part}"
        else:
            whole.append(part)
        goes_on = line.rstrip().endswith("\\")
    words = (line.partition(" ") for line in whole)
    return [Instruction(word.upper(), rest.strip()) for word, _, rest in words]


def copy_of(instruction: Instruction) -> Copy:
    """Read a COPY instruction in its plain form."""
    words = shlex.split(instruction.rest)
    stage = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
    if any(word.startswith("--") for word in words):
        raise UnknownInstructionError(f"COPY {instruction.rest}: only --from is understood here")
    return Copy(stage, tuple(words[:-1]), words[-1])


def assignments_of(instruction: Instruction, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what an ENV instruction sets, with the variables in it put in."""
    pairs = (word.partition("=") for word in shlex.split(instruction.rest))
    return {name: Template(value).substitute(environment) for name, _, value in pairs}


def argument_of(instruction: Instruction, given: Mapping[str, str], defaults: Mapping[str, str]) -> tuple[str, str]:
    """Return name and value of an ARG instruction of a stage."""
    name, _, default = instruction.rest.partition("=")
    return name, given.get(name, default or defaults.get(name, ""))
