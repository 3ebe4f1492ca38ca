"""The shape of a document: the names of its fields and the types of their values, whatever the values are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def shape(document: Any) -> Any:
    """Return `document` with the name of its type in place of each value. Of a list, the different shapes in it."""
    match document:
        case dict():
            return {key: shape(value) for key, value in document.items()}
        case list():
            return sorted({json.dumps(found, sort_keys=True): found for found in map(shape, document)}.values(), key=json.dumps)
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case None:
            return "null"
    raise TypeError(f"{document!r} is of no type that JSON has")


def kept(file: Path, now: Any) -> Any:
    """Return what `file` holds, after writing `now` to it where PACELINE_WRITE_CONTRACTS asks for that."""
    if os.environ.get("PACELINE_WRITE_CONTRACTS"):
        file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    return json.loads(file.read_text())
