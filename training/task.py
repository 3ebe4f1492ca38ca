"""What to train: a model, data and a loss, knowing nothing of ranks. Built-in models and users' entrypoints give the same type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from parallelism.cut.cut_model import Shard
from parallelism.pipelines.chain import Unit
from training.spec.job import JobSpec

Batch = tuple[Tensor, ...]
#: Scalar mean over the batch, and further means to report at evaluation ({"accuracy": ...} becomes eval_accuracy).
Loss = tuple[Tensor, dict[str, Tensor]]


@runtime_checkable
class Dataset(Protocol):
    """Random access to samples. `generator` is the only randomness allowed (augmentation); None at evaluation. With
    `training.data_workers`, `batch` is called by several threads at once."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        """The samples of `indices` (1-D int64), stacked on dimension 0."""
        ...


@runtime_checkable
class Stream(Protocol):
    """Samples that are read in order, in shards: too many to number, or nobody knows how many. There is no end to it: after all samples of
    its shards a micro-batch reads them again, the shards in another order. Reading a shard again must give the same samples in the same
    order, since a resumed or resized job finds its place by counting. Several threads may read different shards at once."""

    @property
    def shards(self) -> int:
        """At least as many as a step has micro-batches."""
        ...

    def samples(self, shard: int) -> int | None:
        """How many it has; None where that is not known without reading it. What is known need not be read to be skipped."""
        ...

    def read(self, shard: int, start: int) -> Iterable[Any]:
        """The samples of one shard (from 0), from number `start` (from 0) on."""
        ...

    def batch(self, samples: Sequence[Any], generator: torch.Generator) -> Batch:
        """These samples, stacked on dimension 0. `generator` is the only randomness allowed."""
        ...


@dataclass(frozen=True)
class Task:
    """`optimizer` is called once the model is where it trains; it takes the place of the spec's, and the spec's schedule scales the
    learning rate that each of its groups is born with. Parameters with requires_grad=False stay as they are. `units` says where a pipeline may
    cut the model; an nn.Sequential is cut between its children."""

    model: nn.Module
    train: Dataset | Stream
    loss: Callable[[nn.Module, Batch], Loss]
    evaluation: Dataset | None = None
    tokens_per_sample: int | None = None
    sample: Callable[[nn.Module, int], str] | None = None  # (model, tokens) -> text
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    units: Callable[[Any], Sequence[Unit]] | None = None
    shard: Shard | None = None  # how the model is cut over a tensor and a context axis
    flops_per_sample: float | None = None  # forward and backward, a multiply-add as two: for MFU, where no formula is known of the model


class MakeTask(Protocol):
    """What `entrypoint: module:function` names. It is called on every rank, with the random numbers seeded alike: what it builds from them
    and from the spec alone is the same everywhere."""

    def __call__(self, spec: JobSpec, /) -> Task: ...
