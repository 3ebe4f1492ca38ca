"""How a preset, which is a named size of a model, is read. Pure; the names and sizes are in each model's own `presets.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRESET = "Named size. Explicit fields override it, and a submitted job stores the numbers instead of the name."


def spelled_out(given: Any, presets: Mapping[Any, Mapping[str, object]]) -> Any:
    """`given` with what its preset stands for in the place of the name: a job that is stored means the same in every later version."""
    name = given.get("preset") if isinstance(given, Mapping) else None
    if not isinstance(name, str) or name not in presets:
        return given  # None, or refused by the field itself
    return {**presets[name], **given, "preset": None}
