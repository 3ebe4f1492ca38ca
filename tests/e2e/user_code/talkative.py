"""A job that prints a line for each batch, and records points of its own by the thousand while the file `flood` is beside it.

Each rank writes down how many of its own points it has recorded: the file `recorded.<rank>`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import paceline
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task

FOLDER = Path(__file__).parent
STEP_SECONDS = 0.05
POINTS_PER_BATCH = 1_000
LINE_CHARACTERS = 400
SAMPLES = 65_536


class TalkativeNumbers:
    """Batches that print; one batch is one step of its rank."""

    def __init__(self) -> None:
        self._batches = self._recorded = 0

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        time.sleep(STEP_SECONDS)
        self._batches += 1
        print(f"batch {self._batches} ".ljust(LINE_CHARACTERS, "."), flush=True)
        if (FOLDER / "flood").exists():
            self._record(POINTS_PER_BATCH)
        return (indices.float().unsqueeze(1) / SAMPLES,)

    def _record(self, count: int) -> None:
        for _ in range(count):
            self._recorded += 1
            paceline.log(self._batches, own=self._recorded)
        rank = os.environ["RANK"]
        (FOLDER / f"recorded.{rank}.new").write_text(str(self._recorded))
        (FOLDER / f"recorded.{rank}.new").replace(FOLDER / f"recorded.{rank}")


def squared(model: nn.Module, batch: Batch) -> Loss:
    (inputs,) = batch
    return (model(inputs) - inputs).square().mean(), {}


def make_task(spec: JobSpec) -> Task:
    return Task(nn.Linear(1, 1), TalkativeNumbers(), squared)
