"""One field of a document, by its path: `--set` of the command line and the axes of experiments change documents here. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NoFieldsError(ValueError):
    """A path leads through a value that has no fields: `key` was to be a field of `under`."""

    def __init__(self, key: str, under: Any) -> None:
        super().__init__(f"{key!r} lies under {under!r}, which has no fields")
        self.key, self.under = key, under


def with_field(document: Any, path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of `document` with the field at `path` set. Parts that are missing, or null, are made. Raises NoFieldsError."""
    if not isinstance(document, dict):
        raise NoFieldsError(path[0], document)
    first, *rest = path
    inner = with_field({} if document.get(first) is None else document[first], rest, value) if rest else value
    return {**document, first: inner}


def without_fields(document: dict[str, Any], part: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a copy of `document` without these fields of one of its parts. A part that is no mapping stays as it is."""
    inside = document.get(part)
    if not isinstance(inside, dict):
        return document
    return {**document, part: {name: value for name, value in inside.items() if name not in names}}


def field_at(document: Any, path: Sequence[str]) -> Any:
    """Return the value at `path`; None where there is none."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document
