"""What all contestants train: one model file, one text, one global batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from paceline.distributed import env
from paceline.training.data import stdlib_text
from paceline.training.schema.data import StdlibText
from paceline.training.spec.job import JobSpec

RANKS = 2
GLOBAL_BATCH = 16
#: In a pipeline; one rank's share goes through in one piece otherwise.
MICRO_BATCHES = 8
CLIP_NORM = 1.0
LEARNING_RATE = 3e-4
MODEL: Mapping[str, Any] = {"kind": "gpt", "layers": 4, "heads": 4, "dim": 256, "context": 128, "vocab_size": 256}
#: In a pipeline the first stage has the embedding and the last one the head: a script would leave them apart.
UNTIED: Mapping[str, Any] = {**MODEL, "tied_embeddings": False}

CPU = torch.device("cpu")


def spec_of(model: Mapping[str, Any], ranks: int, micro_batch_size: int, batch: int = GLOBAL_BATCH, **changes: Any) -> JobSpec:
    fields = {
        "name": "bench",
        "resources": {"nodes": ranks},
        "model": dict(model),
        "data": {"kind": "stdlib_text"},
        "optimizer": {"kind": "adamw", "lr": LEARNING_RATE},
        "training": {
            "steps": 1_000_000,
            "global_batch_size": batch,
            "micro_batch_size": micro_batch_size,
            "gradient_clip_norm": CLIP_NORM,
        },
        "reproducible": False,
    }
    return JobSpec.model_validate(fields | changes)


class Text:
    """The jobs' own text, as a script would draw from it: `seed` is the rank's own, or one for all stages of a pipeline."""

    def __init__(self, context: int, seed: int) -> None:
        self._windows, _ = stdlib_text.load(StdlibText(), context, env.cache_directory())
        self._generator = torch.Generator().manual_seed(seed)

    def draw(self, samples: int) -> tuple[Tensor, Tensor]:
        """Tokens, and the token that comes after each: (samples, context) both."""
        (windows,) = self._windows.batch(torch.randint(len(self._windows), (samples,), generator=self._generator), None)
        return windows[:, :-1], windows[:, 1:]
