"""Reads the requirements files of a spec on this machine, so that the job has their lines and no node needs the files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from paceline.cli.errors import UsageProblem
from paceline.cli.settings import working_directory
from paceline.training.schema.packages import MOST_FILE_BYTES, expand

Spec = dict[str, Any]


def with_requirements(spec: Spec, file: str) -> Spec:
    """The spec that was read from `file` ('-': stdin), with the lines of its requirements files. Paths are found from `environment.working_directory`
    where that is on this machine, else from the folder of `file`; with `environment.code` the coordinator finds them there. Raises UsageProblem."""
    environment = spec.get("environment")
    given = environment.get("requirements") if isinstance(environment, dict) else None
    lines = (f"-r {given}",) if isinstance(given, str) else given
    if not isinstance(environment, dict) or not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        return spec  # without any, or for the coordinator to refuse
    if environment.get("code") is not None or not any(line.strip().startswith(("-r", "--requirement")) for line in lines):
        return spec
    named = environment.get("working_directory")
    folder = (
        Path(named)
        if isinstance(named, str) and os.path.isdir(named)
        else working_directory()
        if file == "-"
        else Path(os.path.abspath(file)).parent
    )
    try:
        read = expand(tuple(_as_named(line) for line in lines), lambda path: _read(folder, path))
    except PydanticCustomError as error:
        raise UsageProblem(f"environment.requirements: {error.message()}") from None
    return {**spec, "environment": {**environment, "requirements": list(read)}}


def _as_named(line: str) -> str:
    for option in ("--requirement", "-r"):
        if line.strip().startswith(option):
            return f"-r {line.strip().removeprefix(option).lstrip(' =')}"
    return line


def _read(folder: Path, path: str) -> str:
    place = folder / path
    try:
        if place.stat().st_size > MOST_FILE_BYTES:
            raise UsageProblem(f"environment.requirements: {place} has {place.stat().st_size:,} bytes; the limit is {MOST_FILE_BYTES:,}")
        return place.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageProblem(
            f"environment.requirements: {place} cannot be read: {error.strerror}", "name it as seen from that folder"
        ) from None
    except UnicodeDecodeError:
        raise UsageProblem(f"environment.requirements: {place} is no text in UTF-8") from None
