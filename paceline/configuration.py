"""The configuration of a script, on its way into the job's history."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from paceline.distributed.env import position
from paceline.monitoring.points import MAX_STEP, RunConfig
from paceline.recording import flat
from paceline.training.own_loop.recorders import emit

#: Entries of a configuration, and characters of each of its texts, that go into the job's history.
MAX_ENTRIES = 200
MAX_CHARACTERS = 200
Plain = str | float | int | bool | None


def record_config(config: Any, name: str = "", project: str = "") -> None:
    """Write rank 0's configuration into the job's history and into the output; other ranks' is the same, and nothing is said of it.

    Raises TypeError if `config` is neither a mapping nor an object with attributes.
    """
    if position().rank != 0:
        return
    entries = plain(as_mapping(config))
    named = f"run {name} of {project}" if project else f"run {name}"
    print(f"{named}, config: {shown(entries)}" if name else f"config: {shown(entries)}", flush=True)
    told = RunConfig(name=name[:MAX_CHARACTERS], project=project[:MAX_CHARACTERS], config=entries)
    emit("run_configured", msgspec.to_builtins(told))


def as_mapping(values: Any) -> Mapping[str, Any]:
    """Return `values` as a mapping: None is empty, and an object stands for its attributes. Raises TypeError for anything else."""
    if values is None:
        return {}
    if isinstance(values, Mapping):
        return values
    if hasattr(values, "__dict__") and not isinstance(values, type):
        attributes: dict[str, Any] = vars(values)
        return attributes
    raise TypeError(f"{values!r} ({type(values).__name__}) is no configuration: pass a dictionary, or an argparse.Namespace")


def plain(values: Mapping[Any, Any]) -> dict[str, Plain]:
    """Return the first MAX_ENTRIES of `values` as JSON values, nested ones under names joined by slashes."""
    return {name[:MAX_CHARACTERS]: _plain(value) for name, value in list(flat(values))[:MAX_ENTRIES]}


def _plain(value: Any) -> Plain:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and abs(value) <= MAX_STEP:
        return int(value) if isinstance(value, int) else float(value)
    return str(value)[:MAX_CHARACTERS]


def shown(values: Mapping[str, Any]) -> str:
    """Return `values` as one line: `lr=0.1, seed=3`."""
    return ", ".join(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items())
