"""A user's own task with a bug that only rank 1 meets, at its third batch."""

import os

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task


class Lines:
    """Points on a line; one of them cannot be drawn."""

    def __init__(self) -> None:
        self.batches = 0

    def __len__(self) -> int:
        return 512

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        self.batches += 1
        if os.environ["RANK"] == "1" and self.batches == 3:
            print("about to divide", flush=True)
            raise ZeroDivisionError("the sample of doom")
        x = indices.float().unsqueeze(1) / len(self)
        return x, 2 * x + 1


def squared_error(model: nn.Module, batch: Batch) -> Loss:
    x, y = batch
    return F.mse_loss(model(x), y), {}


def make_task(spec: JobSpec) -> Task:
    return Task(nn.Linear(1, 1), Lines(), squared_error)
