"""Shard a model over the tensor and the context axis, and wrap its replicas where no other axis shards it.

How a model is sharded is the model's own knowledge (`training/models/<name>/shard.py`) and is passed in as a function.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import loss_parallel

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.process_group import Group
from paceline.parallelism.gradients import AxisGroups, reduce_partial_gradients, sum_gradients
from paceline.parallelism.own_gradients import show_gradients
from paceline.parallelism.plan import Degrees
from paceline.parallelism.tensor_context.sequence import SequenceShard
from paceline.parallelism.tensor_context.tensor_parallel import SequencePadding
from paceline.parallelism.wrapped import AxisParallelModel, LocalBatch, Tensors


def whole_batch(batch: Tensors) -> Tensors:
    """Return `batch`: a rank that trains on all of each sequence."""
    return batch


@dataclass(frozen=True)
class ModelSharding:
    """How a model was sharded, for code that calls it as a whole or stage by stage."""

    local_batch: LocalBatch = whole_batch  # what this rank trains on of a batch
    #: How a hidden state (batch, time, ...) between two units of the model is sharded, by mode; in the order of application.
    training: tuple[SequenceShard, ...] = ()
    evaluation: tuple[SequenceShard, ...] = ()
    padding: SequencePadding | None = None  # pads sequences whose length does not divide; None: not needed


class ShardFunction(Protocol):
    """Shards a model in place over the tensor and the context axis, either of which may be None.

    Every rank holds the same parameters before, and nothing is sent. Of a model in pipeline stages only the modules that have their
    parameters are sharded.
    """

    def __call__(self, model: nn.Module, *, tensor: DeviceMesh | None, context: AxisGroup | None) -> ModelSharding: ...


class CannotShardError(ValueError):
    """The model cannot be sharded as the plan wants it."""


def shard_model(model: nn.Module, shard: ShardFunction | None, degrees: Degrees, mesh: DeviceMesh, group: Group) -> ModelSharding:
    """Shard `model` in place. Raises `CannotShardError` if `shard` is None, and where `shard` does.

    `mesh` is the mesh of the whole world: other axes that shard the model must be part of the same mesh.
    """
    if shard is None:
        raise CannotShardError(
            f"{type(model).__name__} does not say how it is sharded over tensor={degrees.tensor} x context={degrees.context}; leave both at 1"
        )
    return shard(model, tensor=mesh["tensor"] if degrees.tensor > 1 else None, context=group.axis_groups.get("context"))


def loss_context(axis_groups: AxisGroups) -> AbstractContextManager[None]:
    """Return the context for forward and backward: where logits are sharded by vocabulary, the loss is computed on the shards. It must
    not be nested.
    """
    return loss_parallel() if "tensor" in axis_groups else contextlib.nullcontext()


class TensorParallelReplicas(AxisParallelModel):
    """Replicas of a model that is sharded over the tensor axis, which torch's DDP refuses. See `Wrapped`.

    Gradients are summed once in a step.
    """

    has_collective_forward = True

    def __init__(self, model: nn.Module, group: Group, local_batch: LocalBatch) -> None:
        super().__init__(model, group, local_batch)
        self.module = model
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return loss_context(self.group.axis_groups)

    def finish_step(self) -> float:
        show_gradients(self.observe_gradient, self._parameters)
        mark = self.group.exposure.mark()
        reduce_partial_gradients(self._parameters, self.group.axis_groups["tensor"])
        sum_gradients(self._parameters, self.group.axis_groups)
        return self.group.exposure.since(mark)
