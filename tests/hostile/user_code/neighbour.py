"""A well-behaved job: a point and a line for every step, ten steps a second at most, for as long as it is let."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task

STEP_SECONDS = 0.1
SAMPLES = 65_536


class Numbers:
    """Each batch takes STEP_SECONDS and prints a line; one batch is one step."""

    def __init__(self) -> None:
        self._batches = 0

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        time.sleep(STEP_SECONDS)
        self._batches += 1
        print(f"batch {self._batches}", flush=True)
        return (indices.float().unsqueeze(1) / SAMPLES,)


def squared(model: nn.Module, batch: Batch) -> Loss:
    (inputs,) = batch
    return (model(inputs) - inputs).square().mean(), {}


def make_task(spec: JobSpec) -> Task:
    return Task(nn.Linear(1, 1), Numbers(), squared)
