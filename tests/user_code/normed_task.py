"""A task with batch norm over single values, which refuses a micro-batch of one sample."""

from __future__ import annotations

from torch import nn

from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task
from tests.user_code.hungry_task import FEATURES, Rows


def loss(model: nn.Module, batch: Batch) -> Loss:
    return model(batch[0]).square().mean(), {}


def task(spec: JobSpec) -> Task:
    return Task(nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 1)), Rows(), loss)
