"""A model that is cut over the tensor or the context axis, or both: how it gets to be, and its replicas where nothing shards it.

How a model is cut is its own knowledge (`training/models/<name>/shard.py`), which comes in as a function.
"""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import loss_parallel

from distributed.lines import Line
from distributed.process_group import Group
from parallelism.cut.sequence import Cut
from parallelism.cut.tensor_parallel import EvenSequences
from parallelism.data_parallel import AlongLines, OwnPart, Tensors
from parallelism.gradients import Lines, settle_gradients, sum_gradients
from parallelism.plan import Degrees


def all_of_it(batch: Tensors) -> Tensors:
    return batch


@dataclass(frozen=True)
class Cutting:
    """How a model was cut, for whoever calls it whole or stage by stage."""

    own_part: OwnPart = all_of_it  # what this rank trains on of a batch
    #: What it has of a hidden state (batch, time, ...) between two units of the model, by mode; in the order in which they were made.
    training: tuple[Cut, ...] = ()
    evaluation: tuple[Cut, ...] = ()
    even: EvenSequences | None = None  # what makes sequences of any length divide; None: they do


class Shard(Protocol):
    """Cuts a model in place over one axis or two. Every rank holds the same parameters before; nothing is sent. Of a model in stages, those
    modules that have their parameters."""

    def __call__(self, model: nn.Module, *, tensor: DeviceMesh | None, context: Line | None) -> Cutting: ...


class CannotCutError(ValueError):
    """A model that cannot be cut as the plan wants it."""


def cut_model(model: nn.Module, shard: Shard | None, degrees: Degrees, mesh: DeviceMesh, group: Group) -> Cutting:
    """In place. `mesh` is the whole world's: what shards the model further must be a part of the same."""
    if shard is None:
        raise CannotCutError(
            f"{type(model).__name__} does not say how it is cut over tensor={degrees.tensor} x context={degrees.context}; leave both at 1"
        )
    return shard(model, tensor=mesh["tensor"] if degrees.tensor > 1 else None, context=group.lines.get("context"))


def around_loss(lines: Lines) -> AbstractContextManager[None]:
    """Around forward and backward: where the vocabulary is cut the loss is found without putting it together. It does not nest."""
    return loss_parallel() if "tensor" in lines else contextlib.nullcontext()


class CutReplicas(AlongLines):
    """See `Wrapped`. Replicas of a model that is cut over the tensor axis: torch's DDP refuses those. Gradients are added up once in a step."""

    in_lockstep = True

    def __init__(self, model: nn.Module, group: Group, own_part: OwnPart) -> None:
        super().__init__(model, group, own_part)
        self.module = model
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return around_loss(self.group.lines)

    def finish_step(self) -> float:
        started = time.perf_counter()
        settle_gradients(self._parameters, self.group.lines["tensor"])
        sum_gradients(self._parameters, self.group.lines)
        return time.perf_counter() - started
