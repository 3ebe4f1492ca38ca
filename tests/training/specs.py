"""Specs small enough to train in a test."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from paceline.training.data import cifar10

PER_BATCH = 20


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


def write_batches(folder: Path) -> None:
    """CIFAR-10 batches as the published archive has them: protocol 2 pickles of byte-keyed dicts."""
    draw = np.random.default_rng(0)
    for name in (*cifar10.TRAIN_FILES, *cifar10.TEST_FILES):
        content = {
            b"batch_label": name.encode(),
            b"labels": [int(label) for label in draw.integers(0, 10, PER_BATCH)],
            b"data": draw.integers(0, 256, (PER_BATCH, 3072), dtype=np.uint8),
            b"filenames": [b"image.png"] * PER_BATCH,
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def tiny_resnet(folder: Path, **changes: Any) -> dict[str, Any]:
    """With batch norm and augmentation, on the batches in `folder`."""
    return {
        "name": "tiny-resnet",
        "model": {"kind": "resnet", "depth": 8, "width": 2},
        "data": {"kind": "cifar10", "path": str(folder)},
        "optimizer": {"kind": "sgd", "lr": 0.1, "nesterov": True},
        "training": {"steps": 4, "global_batch_size": 11, "micro_batch_size": 2, "eval_every_steps": 2, "eval_samples": 7},
        "checkpoint": {"every_steps": None},
    } | changes
