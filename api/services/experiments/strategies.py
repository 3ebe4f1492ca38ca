"""The strategy of a trial in a few words, from the `parallelism` section of its job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Axes that a job says itself, beside the one that its strategy stands for.
_AXES = ("tensor", "context", "pipeline")


def strategy_word(parallelism: Mapping[str, Any] | None, world_size: int) -> str:
    """Return `fsdp`, or `fsdp, tensor 2` where the matrices are cut as well. None: the section is left out, which means ddp; one process is `single`."""
    section = parallelism or {}
    axes = [f"{axis} {section[axis]}" for axis in _AXES if isinstance(section.get(axis), int) and section[axis] > 1]
    strategy = "single" if world_size == 1 else str(section.get("strategy", "ddp"))
    return ", ".join([strategy, *axes])
