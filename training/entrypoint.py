"""A user's entrypoint: import it, call it, and hold what it gives to the contract of `training.task`.

Whatever does not keep to it is said where it first shows, in words that tell what to write instead, and ends the job at once: it
would be wrong on any other rank too.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from paceline.training.errors import InvalidInputError
from paceline.training.spec.clashes import why_ours_wins
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Dataset, Loss, MakeTask, Stream, Task

DATASET = "an object with __len__() and batch(indices, generator) (paceline.Dataset)"
#: What entrypoints imported of Paceline before everything of it was `paceline.<name>`.
FORMER_NAMES = frozenset({"distributed", "monitoring", "parallelism", "training"})
#: Each sample is used exactly once only if its place can be found again, after a pause or on other ranks.
STREAM = "one whose shards can be read again from a given sample (paceline.Stream)"


def load_entrypoint(entrypoint: str, spec: JobSpec) -> Task:
    """Import `entrypoint`, a `module:function`, with the working directory first on the path, and call it with the spec.

    Raises InvalidInputError if it cannot be imported or called, or if what it returns is no task.
    """
    task: object = find(entrypoint, spec)(spec)
    problem = next(problems(task), None)
    if problem is not None:
        raise InvalidInputError(f"entrypoint {entrypoint}: {problem}")
    assert isinstance(task, Task)
    give_own_memory(task.model)
    return watched(task)


def find(entrypoint: str, spec: JobSpec) -> MakeTask:
    """Import the function that `entrypoint` names. Raises InvalidInputError if there is none, or if it cannot be called with a spec."""
    folder = folder_of(spec)
    prefer(folder)
    if clash := why_ours_wins(folder):
        print(f"WARNING {clash}", flush=True)
    module_name, function_name = entrypoint.split(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidInputError(f"entrypoint {entrypoint}: {_why_not_imported(spec, error)}") from error
    if not hasattr(module, function_name):
        raise InvalidInputError(f"entrypoint {entrypoint}: module {module_name} has no {function_name!r}")
    function: MakeTask = getattr(module, function_name)
    problem = next(uncallable(function, function_name, "spec"), None)
    if problem is not None:
        raise InvalidInputError(f"entrypoint {entrypoint}: {problem}")
    return function


def _why_not_imported(spec: JobSpec, error: ImportError) -> str:
    folder = folder_of(spec)
    looked = folder or "environment.working_directory (not set)"
    missing = f"no module {error.name!r} on the node; looked in {looked} first"
    what = missing if isinstance(error, ModuleNotFoundError) else str(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in FORMER_NAMES:
        what += f". If Paceline's is meant: everything is imported as paceline.{error.name} now, and 'from paceline import Task' is all that it takes"
    clash = why_ours_wins(folder)
    return f"{what}; {clash}" if clash else what


def folder_of(spec: JobSpec) -> str | None:
    """The folder of the job's code: where the process has started, for code that was sent along with the job."""
    return os.getcwd() if spec.environment.code else spec.environment.working_directory


def prefer(folder: str | None) -> None:
    if folder is not None and sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def problems(task: object) -> Iterator[str]:
    """Yield the faults of a task that can be seen before it trains."""
    if not isinstance(task, Task):
        yield f"it returned {type(task).__name__}; return a paceline.Task(model=..., train=..., loss=...)"
        return
    yield from unfit_model(task.model)
    if not isinstance(task.train, Stream):
        yield from unfit_dataset(task.train, "train", f"{DATASET}, or {STREAM}")
    if task.evaluation is not None:
        yield from unfit_dataset(task.evaluation, "evaluation")
    yield from uncallable(task.loss, "Task.loss", "model", "batch")
    if task.sample is not None:
        yield from uncallable(task.sample, "Task.sample", "model", "tokens")
    if task.units is not None:
        yield from uncallable(task.units, "Task.units", "model")
    flops: object = task.flops_per_sample
    if flops is not None and not (isinstance(flops, int | float) and flops > 0):
        yield f"Task.flops_per_sample is {flops!r}; give the operations of a sample, forward and backward, or leave it out"
    optimizer: object = task.optimizer
    if isinstance(optimizer, torch.optim.Optimizer):
        yield "Task.optimizer is an optimizer already; give a function that makes it, for example lambda model: SGD(model.parameters(), lr=0.1)"
    elif optimizer is not None:
        yield from uncallable(optimizer, "Task.optimizer", "model")


def unfit_model(model: object) -> Iterator[str]:
    if not isinstance(model, nn.Module):
        yield f"Task.model is of type {type(model).__name__}; give a torch.nn.Module"
    elif not any(parameter.requires_grad for parameter in model.parameters()):
        yield "Task.model has nothing to train: no parameter with requires_grad=True; unfreeze at least one"
    else:
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and module.weight.requires_grad:
                yield f"Task.model has an embedding with sparse gradients, {name or type(module).__name__}, which are not summed here; give it sparse=False"


def unfit_dataset(data: object, name: str, wanted: str = DATASET) -> Iterator[str]:
    missing = [method for method in ("__len__", "batch") if not callable(getattr(data, method, None))]
    if missing:
        yield f"Task.{name} is of type {type(data).__name__}, which has no {' and no '.join(missing)}; give {wanted}"
    elif len(data) < 1:  # type: ignore[arg-type]
        yield f"Task.{name} is empty: len() gives {len(data)}; give at least one sample"  # type: ignore[arg-type]
    else:
        yield from uncallable(data.batch, f"Task.{name}.batch", "indices", "generator")  # type: ignore[attr-defined]


def uncallable(function: object, name: str, *arguments: str) -> Iterator[str]:
    call = f"{name}({', '.join(arguments)})"
    if not callable(function):
        yield f"{name} is of type {type(function).__name__}; give a function that can be called as {call}"
        return
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        return  # in C, without a signature: the call will tell
    except TypeError as error:
        yield f"{name} cannot be called as {call}: {error}"


def give_own_memory(model: nn.Module) -> None:
    """Give each element of a buffer memory of its own: of one that `expand` has made, many are one, which nothing can be copied into."""
    for buffer in model.buffers():
        if buffer.layout is torch.strided and any(
            stride == 0 and size > 1 for stride, size in zip(buffer.stride(), buffer.shape, strict=True)
        ):
            buffer.data = buffer.data.clone(memory_format=torch.contiguous_format)


def watched(task: Task) -> Task:
    """Return the task with its data and loss wrapped in checks of their contract."""
    return replace(
        task,
        train=task.train if isinstance(task.train, Stream) else WatchedDataset(task.train, "train"),
        evaluation=WatchedDataset(task.evaluation, "evaluation") if task.evaluation is not None else None,
        loss=functools.partial(checked_loss, task.loss),
    )


@dataclass(frozen=True)
class WatchedDataset:
    data: Dataset
    name: str

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        batch = self.data.batch(indices, generator)
        call = f"Task.{self.name}.batch(indices, generator)"
        if not isinstance(batch, tuple) or not all(isinstance(part, Tensor) for part in batch):
            raise InvalidInputError(f"{call} returned {described(batch)}; return a tuple of tensors, also where there is but one")
        for part in batch:
            if part.ndim == 0 or len(part) != len(indices):
                shape = tuple(part.shape)
                raise InvalidInputError(
                    f"{call} returned a tensor of shape {shape} for {len(indices)} indices; stack the samples on dimension 0"
                )
        return batch


def checked_loss(function: Callable[[nn.Module, Batch], Loss], model: nn.Module, batch: Batch) -> Loss:
    result = function(model, batch)
    problem = next(unfit_loss(result), None)
    if problem is not None:
        raise InvalidInputError(f"Task.loss(model, batch) {problem}")
    return result


def unfit_loss(result: Any) -> Iterator[str]:
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Tensor) or not isinstance(result[1], dict):
        yield f"returned {described(result)}; return (loss, {{}}): a scalar mean over the batch, and further means to report at evaluation"
        return
    loss, extras = result
    if loss.numel() != 1 or loss.ndim:
        yield f"returned a loss of shape {tuple(loss.shape)}; return a scalar, the mean over the batch, such as loss.mean()"
    elif torch.is_grad_enabled() and not loss.requires_grad:
        yield "returned a loss that depends on no trainable parameter; compute it from model(...), without detach() or no_grad()"
    for name, value in extras.items():
        if not isinstance(value, Tensor) or value.ndim:
            yield f"returned {name}={described(value)} beside the loss; give a scalar tensor, the mean over the batch"


def described(value: object) -> str:
    """A type, and of what it is made."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    inside = f" of {', '.join(type(part).__name__ for part in value)}" if isinstance(value, tuple | list) else ""
    return f"a {type(value).__name__}{inside}"


def own_optimizer(task: Task) -> torch.optim.Optimizer:
    """Return the optimizer that the task makes for its model as it is now. Raises InvalidInputError if it is unfit."""
    assert task.optimizer is not None
    optimizer: object = task.optimizer(task.model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidInputError(f"Task.optimizer(model) returned {described(optimizer)}; return a torch.optim.Optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidInputError(
            "Task.optimizer(model) returned LBFGS, which computes the loss many times in a step; use one that computes it once"
        )
    known = set(task.model.parameters())
    for number, group in enumerate(optimizer.param_groups):
        if any(parameter not in known for parameter in group["params"]):
            raise InvalidInputError(
                f"Task.optimizer(model): group {number} has a parameter that is not the model's; take them from the model given"
            )
        if not isinstance(group.get("lr"), float | int):
            raise InvalidInputError(
                f"Task.optimizer(model): group {number} has lr={group.get('lr')!r}; give a number, which the schedule scales"
            )
    return optimizer
