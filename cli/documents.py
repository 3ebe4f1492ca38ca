"""Job specs from files: YAML (JSON is YAML), with `--set a.b=c` applied on top. The coordinator validates the result."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import yaml

from paceline.cli.errors import UsageProblem
from paceline.training.spec.text import load

SET_SYNTAX = "write --set part.field=value, for example --set training.steps=200"


def read_spec(path: str, changes: list[str]) -> dict[str, Any]:
    """The spec in the file at `path` ('-': stdin) with the changes applied."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        document = load(text)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}", "the examples folder has specs to start from") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageProblem(f"{path} cannot be read as YAML: {error}") from error
    if document is None:
        raise UsageProblem(f"{path} is empty", "the examples folder has specs to start from")
    if not isinstance(document, dict):
        raise UsageProblem(f"{path} holds a {type(document).__name__}, not a mapping of job fields")
    spec: dict[str, Any] = document
    for change in changes:
        spec = with_change(spec, change)
    _require_finite(spec, path, ())
    return spec


def with_change(document: dict[str, Any], change: str) -> dict[str, Any]:
    """A copy of `document` with one `a.b=c` applied; the value is YAML, so 3, true, null and [1, 2] keep their types."""
    path, equals, text = change.partition("=")
    if not equals or not all(path.split(".")):
        raise UsageProblem(f"--set {change!r} has no field or no '='", SET_SYNTAX)
    try:
        value = load(text, at=tuple(path.split(".")))
    except yaml.YAMLError as error:
        raise UsageProblem(f"--set {path}: {text!r} is not a YAML value: {error}", SET_SYNTAX) from error
    return _placed(document, path.split("."), value, path)


def _require_finite(value: Any, path: str, place: tuple[str, ...]) -> None:
    """Refuse NaN and infinities, which JSON, in which a spec travels, does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageProblem(f"{path}: {'.'.join(place)} is {value}; write a finite number")
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        _require_finite(part, path, (*place, str(name)))


def _placed(document: Any, keys: list[str], value: Any, path: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise UsageProblem(f"--set {path}: {keys[0]!r} lies under {document!r}, which has no fields", SET_SYNTAX)
    first, *rest = keys
    inner = _placed({} if document.get(first) is None else document[first], rest, value, path) if rest else value
    return {**document, first: inner}
