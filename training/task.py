"""What to train: a model, data and a loss, knowing nothing of ranks. Built-in models and users' entrypoints give the same type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from training.spec import JobSpec

Batch = tuple[Tensor, ...]
#: Scalar mean over the batch, and further means to report at evaluation ({"accuracy": ...} becomes eval_accuracy).
Loss = tuple[Tensor, dict[str, Tensor]]


class Dataset(Protocol):
    """Random access to samples. `generator` is the only randomness allowed (augmentation); None at evaluation."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        """The samples of `indices` (1-D int64), stacked on dimension 0."""
        ...


@dataclass(frozen=True)
class Task:
    """`optimizer` is called once the model is where it trains; it takes the place of the spec's, and the spec's schedule scales the
    learning rate that each of its groups is born with. Parameters with requires_grad=False stay as they are."""

    model: nn.Module
    train: Dataset
    loss: Callable[[nn.Module, Batch], Loss]
    evaluation: Dataset | None = None
    tokens_per_sample: int | None = None
    sample: Callable[[nn.Module, int], str] | None = None  # (model, tokens) -> text
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None


class MakeTask(Protocol):
    """What `entrypoint: module:function` names. It is called on every rank, with the random numbers seeded alike: what it builds from them
    and from the spec alone is the same everywhere."""

    def __call__(self, spec: JobSpec, /) -> Task: ...
