"""A small regression whose parameters and samples are fixed numbers, so that gradients can be computed by hand. Ranks import it too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from paceline.parallelism.plan import assign_evenly
from paceline.training.data.sampler import BatchSplit, Sampler
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task

SAMPLES, SEED, PORTIONS = 24, 3, BatchSplit(12, 2)


def fixed_job(entrypoint: str = "fixed", **changes: Any) -> dict[str, Any]:
    """Twelve samples a step in six micro-batches; of two ranks each computes three, which are two subtrees of the fixed tree."""
    return {
        "name": "fixed",
        "entrypoint": f"{__name__}:{entrypoint}",
        "optimizer": {"kind": "sgd", "lr": 0.05},
        "training": {"steps": 4, "global_batch_size": 12, "micro_batch_size": 2, "eval_every_steps": None, "seed": SEED},
        "checkpoint": {"every_steps": None},
    } | changes


class Waves:
    def __init__(self, bad: int | None = None) -> None:
        self.inputs = torch.sin(torch.arange(SAMPLES * 6, dtype=torch.float32)).reshape(SAMPLES, 6)
        self.targets = self.inputs.sum(1, keepdim=True).cos()
        if bad is not None:
            self.targets[bad] = torch.nan

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        return self.inputs[indices], self.targets[indices]


def model() -> nn.Sequential:
    """Half of the hidden units never see a positive number, so that half of the first layer's gradients are zero."""
    first = nn.Linear(6, 8)
    made = nn.Sequential(first, nn.ReLU(), nn.Linear(8, 2), nn.Linear(2, 1))
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(torch.cos(torch.arange(parameter.numel(), dtype=torch.float32) + number).reshape(parameter.shape))
        first.bias[4:] = -100.0
    return made


def loss(module: nn.Module, batch: Batch) -> Loss:
    inputs, targets = batch
    return nn.functional.mse_loss(module(inputs), targets), {}


def fixed(spec: JobSpec) -> Task:
    return Task(model(), Waves(), loss)


def nan_at_rank_1(spec: JobSpec) -> Task:
    """A sample of the second rank's first micro-batch in step 1 has no target."""
    first = assign_evenly(PORTIONS.micro_batches, 2).micro_batches // 2
    return Task(model(), Waves(bad=int(samples_of(1, first)[0])), loss)


def samples_of(step: int, micro_batch: int) -> Tensor:
    return Sampler(SAMPLES, SEED, PORTIONS).micro_batch(step, micro_batch)


def by_hand(micro_batches: list[int], step: int = 1) -> dict[str, Tensor]:
    """The gradients of these micro-batches' part of the mean over the global batch, at the first parameters."""
    made, data = model(), Waves()
    for index in micro_batches:
        (loss(made, data.batch(samples_of(step, index), None))[0] * PORTIONS.weight(index)).backward()  # type: ignore[no-untyped-call]
    return {name: parameter.grad for name, parameter in made.named_parameters() if parameter.grad is not None}
