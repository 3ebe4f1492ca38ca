"""What to train: a model, data and a loss, knowing nothing of ranks. Built-in models and users' entrypoints give the same type."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from training.errors import InvalidInputError
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
    model: nn.Module
    train: Dataset
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
    return task


def prefer(folder: str | None) -> None:
    if folder is not None and sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
