"""Specs of jobs and experiments from files: YAML (JSON is YAML), with `--set a.b=c` applied on top. The coordinator validates the result."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from paceline.cli.errors import UsageProblem
from paceline.training.spec.changes import NoFieldsError, with_field
from paceline.training.spec.text import MAX_SPEC_BYTES, load

SET_SYNTAX = "write --set part.field=value, for example --set training.steps=200"
#: Sections of an experiment whose keys are paths: `--set grid.optimizer.lr=[1, 2]` sets the key `optimizer.lr` of `grid`.
KEYED_BY_PATH = ("grid", "search.parameters")


def read_spec(path: str, changes: list[str], keyed_by_path: Sequence[str] = ()) -> dict[str, Any]:
    """The spec in the file at `path` ('-': stdin) with the changes applied. `keyed_by_path`: its sections whose keys are paths."""
    try:
        text = _read_bounded(path).decode("utf-8")
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}", "the examples folder has specs to start from") from error
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{path} cannot be read as YAML: {error}") from error
    spec = parse_spec(text, path)
    for change in changes:
        spec = with_change(spec, change, keyed_by_path)
    _require_finite(spec, path, ())
    return spec


def _read_bounded(path: str) -> bytes:
    """What the coordinator would take of a file, and no more: a device or a pipe may never end."""
    is_stdin = path == "-"
    with open(sys.stdin.fileno() if is_stdin else path, "rb", closefd=not is_stdin) as file:
        text = file.read(MAX_SPEC_BYTES + 1)
    if len(text) > MAX_SPEC_BYTES:
        raise UsageProblem(f"{path} is longer than {MAX_SPEC_BYTES:,} bytes, the most that a spec may have", "is it the right file?")
    return text


def parse_spec(text: str, path: str) -> dict[str, Any]:
    """The spec in a text; `path` is what messages call it."""
    try:
        document = load(text)
    except yaml.YAMLError as error:
        raise UsageProblem(f"{path} cannot be read as YAML: {error}") from error
    if document is None:
        raise UsageProblem(f"{path} is empty", "the examples folder has specs to start from")
    if not isinstance(document, dict):
        raise UsageProblem(f"{path} holds a {type(document).__name__}, not a mapping of fields")
    spec: dict[str, Any] = document
    _require_finite(spec, path, ())
    return spec


def with_change(document: dict[str, Any], change: str, keyed_by_path: Sequence[str] = ()) -> dict[str, Any]:
    """A copy of `document` with one `a.b=c` applied; the value is YAML, so 3, true, null and [1, 2] keep their types."""
    path, equals, text = change.partition("=")
    if not equals or not all(path.split(".")):
        raise UsageProblem(f"--set {change!r} has no field or no '='", SET_SYNTAX)
    try:
        value = load(text, at=tuple(path.split(".")))
    except yaml.YAMLError as error:
        raise UsageProblem(f"--set {path}: {text!r} is not a YAML value: {error}", SET_SYNTAX) from error
    try:
        return with_field(document, _keys(path, keyed_by_path), value)
    except NoFieldsError as error:
        raise UsageProblem(f"--set {path}: {error}", SET_SYNTAX) from None


def _keys(path: str, keyed_by_path: Sequence[str]) -> list[str]:
    section = next((each for each in keyed_by_path if path.startswith(f"{each}.")), None)
    return path.split(".") if section is None else [*section.split("."), path.removeprefix(f"{section}.")]


def _require_finite(value: Any, path: str, place: tuple[str, ...]) -> None:
    """Refuse NaN and infinities, which JSON, in which a spec travels, does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageProblem(f"{path}: {'.'.join(place)} is {value}; write a finite number")
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        _require_finite(part, path, (*place, str(name)))
