"""A user's task whose gradients overflow in fp16 on one sample: in one step of the epoch, on one rank or in one layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from paceline.training.data.sampler import BatchSplit, Sampler
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task
from tests.parallelism.parity import STEPS

PORTIONS = BatchSplit(8, 2)
SAMPLES = STEPS * PORTIONS.global_batch_size
SEED = 0
#: The step that overflows, unless it is the first, and the micro-batch that does it: the last rank's, in any world.
STEP, MICRO_BATCH = 7, 3
#: Factors of that sample's loss and of all others, which then fit at the first scale already.
EXPLOSIVE, ORDINARY = 1e9, 0.01
#: The size of that sample's inputs where only the layer that sees them is to overflow: in fp16 they are still finite.
FAR = 1e4
#: The factor of that task's loss.
GENTLE = 0.2


def overflowing(entrypoint: str = "in_the_middle", **changes: Any) -> dict[str, Any]:
    return {
        "name": "overflowing",
        "entrypoint": f"{__name__}:{entrypoint}",
        "optimizer": {"kind": "adamw", "lr": 1e-2},
        "training": {"steps": STEPS, "global_batch_size": 8, "micro_batch_size": 2, "eval_every_steps": None, "seed": SEED},
        "precision": "fp16",
    } | changes


class Normed(nn.Module):
    """A model with running statistics, which an overflow must not spoil."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.layers(inputs)
        return output.squeeze(1)


class Numbers:
    def __init__(self, step: int) -> None:
        self.explosive = Sampler(SAMPLES, SEED, PORTIONS).micro_batch(step, MICRO_BATCH)[0]

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        inputs = torch.stack([torch.sin(indices * factor) for factor in (1.0, 2.0, 3.0)], dim=1)
        return inputs, inputs.prod(dim=1), torch.where(indices == self.explosive, EXPLOSIVE, ORDINARY)


class Sine(nn.Module):
    """Passes on small values, whatever its inputs are, and a gradient that is no larger than that of its outputs."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.float().sin()


class FarNumbers(Numbers):
    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        inputs, wanted, _ = super().batch(indices, generator)
        return inputs * torch.where(indices == self.explosive, FAR, 1.0)[:, None], wanted


def loss(model: nn.Module, batch: Batch) -> Loss:
    inputs, wanted, factors = batch
    return ((model(inputs).float() - wanted).square() * factors).mean(), {}


def in_the_middle(spec: JobSpec) -> Task:
    return Task(Normed(), Numbers(STEP), loss)


def at_once(spec: JobSpec) -> Task:
    return Task(Normed(), Numbers(1), loss)


def squared_error(model: nn.Module, batch: Batch) -> Loss:
    inputs, wanted = batch
    return (model(inputs).squeeze(1).float() - wanted).square().mean() * GENTLE, {}


def in_the_first_layer(spec: JobSpec) -> Task:
    """A chain of four layers: the others' gradients are finite."""
    model = nn.Sequential(nn.Linear(3, 8), Sine(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return Task(model, FarNumbers(STEP), squared_error)


#: At a gentle rate, so that losses are as large still in the step that overflows.
IN_THE_FIRST_LAYER = overflowing("in_the_first_layer", optimizer={"kind": "adamw", "lr": 1e-3})
