"""A task whose rank 1 has memory for as many samples at a time as the job's label `most` says, and no more. It says so as a GPU does: with an
OutOfMemoryError, half-way."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task

FEATURES = 4


class Rows:
    def __len__(self) -> int:
        return 64

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        return (indices.float()[:, None].expand(-1, FEATURES) / len(self),)


def task(spec: JobSpec) -> Task:
    most = int(spec.labels["most"])

    def hungry_loss(model: nn.Module, batch: Batch) -> Loss:
        outputs = model(batch[0])
        if os.environ["RANK"] == "1" and len(outputs) > most:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {len(outputs)} samples")
        return outputs.square().mean(), {}

    return Task(nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 1)), Rows(), hungry_loss)
