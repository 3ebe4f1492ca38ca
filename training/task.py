"""What to train: a model, data and a loss, knowing nothing of ranks. Built-in models and users' entrypoints give the same type."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from training.errors import InvalidInputError
from training.spec import JobSpec

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
    model: nn.Module
    train: Dataset | Stream
    loss: Callable[[nn.Module, Batch], Loss]
    evaluation: Dataset | None = None
    tokens_per_sample: int | None = None
    sample: Callable[[nn.Module, int], str] | None = None  # (model, tokens) -> text


def load_entrypoint(spec: JobSpec) -> Task:
    """Import `module:function` with the working directory first on the path, and call it with the spec."""
    assert spec.entrypoint is not None
    prefer(spec.environment.working_directory)
    module_name, function_name = spec.entrypoint.split(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ModuleNotFoundError as error:
        folder = spec.environment.working_directory or "environment.working_directory (not set)"
        raise InvalidInputError(f"entrypoint {spec.entrypoint}: no module {error.name!r} on the node; looked in {folder} first") from error
    except AttributeError as error:
        raise InvalidInputError(f"entrypoint {spec.entrypoint}: module {module_name} has no {function_name!r}") from error
    task = function(spec)
    if not isinstance(task, Task):
        raise InvalidInputError(f"entrypoint {spec.entrypoint} returned {type(task).__name__}; return a training.task.Task")
    require_repeatable(task)
    return task


def require_repeatable(task: Task) -> None:
    """Each sample is used exactly once only if its place can be found again: after a pause, on other ranks."""
    if not isinstance(task.train, Dataset | Stream):
        raise InvalidInputError(
            f"Task.train is a {type(task.train).__name__}, which is neither a training.task.Dataset (samples by number) nor a training.task.Stream "
            "(shards that can be read again from a given sample): after a pause or on other ranks nobody could find its place again; give one of these"
        )


def prefer(folder: str | None) -> None:
    if folder is not None and sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
