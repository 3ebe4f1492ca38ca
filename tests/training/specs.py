"""Specs small enough to train in a test."""

from __future__ import annotations

from typing import Any


def tiny_gpt(nodes: int = 1, steps: int = 12, dropout: float = 0.1, **training: Any) -> dict[str, Any]:
    """With dropout, so that randomness must be in step too. Two samples a micro-batch, whatever the world."""
    length = {"steps": steps, "global_batch_size": 8, "micro_batch_size": 2, "eval_every_steps": 6, "eval_samples": 7}
    return {
        "name": "tiny",
        "resources": {"nodes": nodes},
        "model": {"kind": "gpt", "layers": 1, "heads": 2, "dim": 16, "context": 16, "dropout": dropout},
        "data": {"kind": "stdlib_text"},
        "optimizer": {"kind": "adamw", "lr": 1e-2},
        "schedule": {"warmup_steps": 3},
        "training": length | training,
        "checkpoint": {"every_steps": None},
        "fault_tolerance": {"recovery": "restart"},  # tests that have survivors close up say so
    }
