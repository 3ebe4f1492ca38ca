"""The example job specs that Paceline comes with."""

from __future__ import annotations

from pathlib import Path

from paceline.location import EXAMPLES

FOLDER = "examples"
FIRST_SPEC = "gpt_stdlib.yaml"


def first_spec() -> str | None:
    """The path of a spec to begin with, as it is to be typed in this folder; None: the examples are not on this machine."""
    if (Path(FOLDER) / FIRST_SPEC).is_file():
        return f"{FOLDER}/{FIRST_SPEC}"
    shipped = EXAMPLES.resolve() / FIRST_SPEC
    return str(shipped) if shipped.is_file() else None
