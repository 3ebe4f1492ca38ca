"""What to train: a model, data and a loss, knowing nothing of ranks. Built-in models and users' entrypoints give the same type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from paceline.parallelism.pipelines.chain import Unit
from paceline.parallelism.tensor_context.shard_model import ShardFunction
from paceline.training.spec.job import JobSpec

Batch = tuple[Tensor, ...]
#: Scalar mean over the batch, and further means to report at evaluation ({"accuracy": ...} becomes eval_accuracy).
Loss = tuple[Tensor, dict[str, Tensor]]


@runtime_checkable
class Dataset(Protocol):
    """Random access to samples, the same on every rank and after a pause: their order follows from their number, and another one is refused.

    `generator` is the only randomness allowed (augmentation); it is None at evaluation. With `training.data_workers`, several threads call
    `batch` at once.
    """

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        """Return the samples of `indices` (1-D int64), stacked on dimension 0."""
        ...


@runtime_checkable
class Stream(Protocol):
    """Samples that are read in order, in shards: their number is unknown or too large for random access.

    A stream has no end: after all samples of its shards a micro-batch reads them again, the shards in another order. Reading a shard again
    must give the same samples in the same order, since a resumed or resized job finds its place by counting. Several threads may read
    different shards at once.
    """

    @property
    def shards(self) -> int:
        """Number of shards; at least as many as a step has micro-batches."""
        ...

    def samples(self, shard: int) -> int | None:
        """Return the number of samples in a shard, or None if only reading tells. A shard of known size is skipped unread."""
        ...

    def read(self, shard: int, start: int) -> Iterable[Any]:
        """Return the samples of one shard (from 0), beginning with number `start` (from 0)."""
        ...

    def batch(self, samples: Sequence[Any], generator: torch.Generator) -> Batch:
        """Return `samples` stacked on dimension 0. `generator` is the only randomness allowed."""
        ...


@dataclass(frozen=True)
class Task:
    """A model, data and a loss, and optional hooks.

    `optimizer` is called once the model is on its device. It replaces the spec's optimizer, and the spec's schedule scales the initial
    learning rate of each of its groups. Parameters with requires_grad=False stay as they are. `units` says where a pipeline may split the
    model; an nn.Sequential is split between its children. In a pipeline `loss` may call its model once, with one tensor, and ask for nothing
    else of it.
    """

    model: nn.Module
    train: Dataset | Stream
    loss: Callable[[nn.Module, Batch], Loss]
    evaluation: Dataset | None = None
    tokens_per_sample: int | None = None
    sample: Callable[[nn.Module, int], str] | None = None  # (model, tokens) -> text
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    units: Callable[[Any], Sequence[Unit]] | None = None
    shard: ShardFunction | None = None  # how the model is sharded over a tensor and a context axis
    flops_per_sample: float | None = None  # forward and backward, a multiply-add as two: for MFU, where no formula is known of the model


class MakeTask(Protocol):
    """Function that `entrypoint: module:function` names."""

    def __call__(self, spec: JobSpec, /) -> Task:
        """Return the task of `spec`.

        Called on every rank, with random numbers seeded alike: what is built from them and from the spec alone is the same everywhere.
        """
        ...
