"""The job that is struck, here and with every peer: a small GPT on real text, quick enough to show what a fault costs beside a step."""

from __future__ import annotations

from typing import Any

MODEL = {"kind": "gpt", "layers": 4, "heads": 4, "dim": 128, "context": 64}
GLOBAL_BATCH = 6
RANKS = 3
#: More than any run takes: a job is cancelled when enough has been seen.
STEPS = 1_000_000
#: How far a model in parts goes back at most: the price of a fault, beside the time that it takes.
SAVED_EVERY = 20


def sharded_job(name: str) -> dict[str, Any]:
    """Return the spec of the same job under FSDP, where a fault takes a part of the state with it and counts as a restart."""
    spec = gpt_job(name, max_restarts=1000)
    return spec | {"parallelism": {"strategy": "fsdp"}, "checkpoint": {"every_steps": SAVED_EVERY}}


def gpt_job(name: str, *, spares: int = 0, steps: int = STEPS, **fault_tolerance: Any) -> dict[str, Any]:
    """A spec that closes up and grows back, and never restarts: a restart would be a loss, so it shall show as a failure."""
    return {
        "name": name,
        "resources": {"nodes": RANKS},
        "model": MODEL,
        "data": {"kind": "stdlib_text"},
        "training": {"steps": steps, "global_batch_size": GLOBAL_BATCH, "micro_batch_size": 1, "eval_every_steps": None, "seed": 7},
        "checkpoint": {"every_steps": None},
        "fault_tolerance": {"recovery": "close_up", "max_restarts": 0, **({"spares": spares} if spares else {}), **fault_tolerance},
    }
