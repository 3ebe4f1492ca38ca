"""Small real jobs: seconds, not minutes."""

from __future__ import annotations

from typing import Any


def tiny_gpt(name: str, steps: int, *, nodes: int = 2, checkpoint_every: int | None = None, **overrides: Any) -> dict[str, Any]:
    return {
        "name": name,
        "resources": {"nodes": nodes},
        "model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 64, "context": 64},
        "data": {"kind": "stdlib_text"},
        "training": {"steps": steps, "global_batch_size": 8, "eval_every_steps": None, "seed": 7},
        "checkpoint": {"every_steps": checkpoint_every},
        **overrides,
    }
