"""A user's task whose loss is bad on one sample: NaN in one step of the epoch, or far above all others in another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from paceline.training.data.sampler import BatchSplit, Sampler
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task
from tests.parallelism.overflow import Normed

PORTIONS = BatchSplit(8, 2)
STEPS = 48
SAMPLES = STEPS * PORTIONS.global_batch_size
SEED = 0
#: The steps with a bad sample, and the micro-batch that has it: the last rank's, in any world.
NAN_STEP, SPIKE_STEP, MICRO_BATCH = 7, 40, 3
SPIKE = 1e3


def bad_job(entrypoint: str = "nan_once", **changes: Any) -> dict[str, Any]:
    return {
        "name": "bad-losses",
        "entrypoint": f"{__name__}:{entrypoint}",
        "optimizer": {"kind": "adamw", "lr": 1e-2},
        "training": {"steps": 10, "global_batch_size": 8, "micro_batch_size": 2, "eval_every_steps": None, "seed": SEED},
        "checkpoint": {"every_steps": 5, "keep_last": 100},
    } | changes


def bad_samples(step: int) -> list[int]:
    """Return the samples of the bad micro-batch of a step."""
    found: list[int] = Sampler(SAMPLES, SEED, PORTIONS).micro_batch(step, MICRO_BATCH).tolist()
    return found


class Numbers:
    """Each sample with the factor of its loss."""

    def __init__(self, factors: dict[int, float]) -> None:
        self.factors = torch.ones(SAMPLES)
        for step, factor in factors.items():
            self.factors[bad_samples(step)[0]] = factor

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        inputs = torch.stack([torch.sin(indices * factor) for factor in (1.0, 2.0, 3.0)], dim=1)
        return inputs, inputs.prod(dim=1), self.factors[indices]


def loss(model: nn.Module, batch: Batch) -> Loss:
    inputs, wanted, factors = batch
    return ((model(inputs) - wanted).square() * factors).mean(), {}


def nan_once(spec: JobSpec) -> Task:
    return Task(Normed(), Numbers({NAN_STEP: float("nan")}), loss)


def nan_at_once(spec: JobSpec) -> Task:
    return Task(Normed(), Numbers({1: float("nan")}), loss)


def nan_always(spec: JobSpec) -> Task:
    return Task(Normed(), Numbers(dict.fromkeys(range(NAN_STEP, STEPS), float("nan"))), loss)


def spike_once(spec: JobSpec) -> Task:
    return Task(Normed(), Numbers({SPIKE_STEP: SPIKE}), loss)


def squared_error(model: nn.Module, batch: Batch) -> Loss:
    inputs, wanted, factors = batch
    return ((model(inputs).squeeze(1) - wanted).square() * factors).mean(), {}


def nan_in_layers(spec: JobSpec) -> Task:
    """A chain of layers, which a pipeline may split."""
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return Task(model, Numbers({NAN_STEP: float("nan")}), squared_error)
