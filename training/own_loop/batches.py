"""A batch of a user's loader: to the device, through the model, to its loss.

A batch that is a pair is (inputs, targets). Any other one is both: the model's inputs, and what the criterion is given besides the outputs.
Inputs that are a mapping are named arguments of the model, a tuple positional ones, and anything else, such as a PackedSequence, is the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from paceline.training.errors import InvalidInputError

#: Scalar mean over the batch from (outputs, targets); None: the outputs have it as `loss`, as those of transformers' models do.
Criterion = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class TaskLoss:
    """The loss of a `paceline.Task` as a criterion: it calls the model by itself."""

    loss: Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, dict[str, Tensor]]]

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        raise InvalidInputError("a task's loss takes the model and a whole batch; give it to Trainer.train_step as its criterion")


def parts_of(batch: Any) -> tuple[Any, Any]:
    """Split a batch into (inputs, targets); a batch that is no pair is both."""
    return (batch[0], batch[1]) if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, batch)


def outputs_of(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) and not isinstance(inputs, PackedSequence) else model(inputs)


def loss_of(model: nn.Module, batch: Any, criterion: Criterion | None) -> Tensor:
    """Compute the loss of a batch. Raises InvalidInputError if it is not a scalar with gradients."""
    loss, source = found_loss(model, batch, criterion)
    if not isinstance(loss, Tensor):
        raise InvalidInputError(f"{source} returned {type(loss).__name__}; return a scalar tensor, the mean over the batch")
    if loss.numel() != 1:
        raise InvalidInputError(f"{source} returned a tensor of shape {tuple(loss.shape)}; return a scalar, such as loss.mean()")
    if not loss.requires_grad:
        raise InvalidInputError(
            f"{source} returned a loss that depends on no trainable parameter; compute it from outputs without detach()"
        )
    return loss.reshape(())


def found_loss(model: nn.Module, batch: Any, criterion: Criterion | None) -> tuple[object, str]:
    """Return whatever is given as the loss, and what has given it."""
    if isinstance(criterion, TaskLoss):
        return criterion.loss(model, tuple(batch))[0], "loss(model, batch)"
    inputs, targets = parts_of(batch)
    outputs = outputs_of(model, inputs)
    if criterion is None:
        return getattr(outputs, "loss", None), "the model's outputs have no loss; give a criterion:"
    return criterion(outputs, targets), "criterion(outputs, targets)"


def to_device(batch: Any, device: torch.device) -> Any:
    """Tensors wherever they are in it; what is no tensor stays as it is."""
    if isinstance(batch, Tensor | PackedSequence):
        return batch.to(device, non_blocking=True)  # type: ignore[arg-type]
    if isinstance(batch, Mapping):
        return {name: to_device(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [to_device(value, device) for value in batch]
        if isinstance(batch, list):
            return moved
        return type(batch)(*moved) if hasattr(batch, "_fields") else tuple(moved)  # of a named one, with its names
    return batch


def samples_in(batch: Any) -> int:
    """Return the number of rows of the first tensor in a batch. Raises InvalidInputError if there is none, or all are empty."""
    first = next(tensors_in(batch), None)
    if first is None or first.ndim == 0:
        raise InvalidInputError(
            f"a batch of type {type(batch).__name__} has no tensor with samples on dimension 0; give one, as a DataLoader does"
        )
    if not any(each.numel() for each in tensors_in(batch)):
        raise InvalidInputError("the batch has no samples: its loss would be NaN; leave empty batches out, on every rank")
    return len(first)


def tensors_in(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from tensors_in(value)
