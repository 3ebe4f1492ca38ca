"""What a wrapped model is: the module to call, and what to do around a step.

`PreparedModel` and `Wrapped` are the protocols of all wrapped models; `apply.parallelize` chooses the class. The other classes here are what several
of them have in common, and the wrapped model of a single process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

from paceline.distributed.axis_groups import WaitTimer
from paceline.distributed.process_group import Group
from paceline.parallelism.own_gradients import GradientObserver, show_gradients
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.running_statistics import saved_buffers
from paceline.parallelism.tree import TreeNode

#: By subtree of micro-batches: the sums over them of all gradients, followed by those of all changes to buffers.
Sums = dict[TreeNode, list[Tensor]]
Tensors = tuple[Tensor, ...]
#: Maps a batch to what a rank trains on: its shard of each sequence, or all of it.
LocalBatch = Callable[[Tensors], Tensors]


class PreparedModel(Protocol):
    """A model that is ready to be trained in its world, seen from one rank. Every rank makes the same calls."""

    has_collective_forward: bool  # every rank takes part in every forward and backward pass, since each holds a shard of the parameters
    observe_gradient: GradientObserver | None  # is shown this rank's own gradients in each step, before `finish_step` makes them global

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        """Begin a step in which this rank computes the micro-batches of `assignment`.

        `sums` may already hold sums of gradients of this rank's micro-batches; those that the rank computes are added to it.
        """
        ...

    def finish_step(self) -> float:
        """Make gradients global, right after the last backward. Collective.

        Returns the seconds that this rank only waited for other ranks, in here or since the last bucket was handed over. On a GPU they are known later
        (`WaitClock.collect`).
        """
        ...

    def sync_buffers(self) -> None:
        """Make running statistics equal on every rank, before they are read or saved. Collective."""
        ...


class Wrapped(PreparedModel, Protocol):
    """A `PreparedModel` model that is called micro-batch by micro-batch."""

    module: nn.Module  # call this one to train

    def local_batch(self, batch: Tensors) -> Tensors:
        """Return what this rank trains on of a micro-batch: all of it, or its shard of every sequence."""
        ...

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        """Return the context around forward and backward of micro-batch `index`. `final`: it is this rank's last one of the step."""
        ...

    def waited(self) -> float:
        """Return the seconds that this rank only waited for others within forward and backward, since the last call of `waited`."""
        ...

    def release_memory(self) -> None:
        """Free memory that is kept from one step to the next and that the next step can allocate again."""
        ...

    def exchange_buffer_bytes(self, passes: int) -> int:
        """Return the bytes of exchange buffers that are kept between steps, beside the gradients, for `passes` passes in a step."""
        ...


class WholeModel:
    """The parts of `Wrapped` that are equal wherever every rank holds the whole model."""

    has_collective_forward = False
    observe_gradient: GradientObserver | None = None

    def local_batch(self, batch: Tensors) -> Tensors:
        return batch

    def waited(self) -> float:
        return 0.0

    def release_memory(self) -> None:
        """Do nothing: no memory is kept that could be allocated again."""

    def exchange_buffer_bytes(self, passes: int) -> int:
        return 0


class SingleProcess(WholeModel):
    """A model on one rank, for which nothing has to be exchanged."""

    def __init__(self, model: nn.Module) -> None:
        self.module = model

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        """Do nothing: backward adds gradients up where they are."""

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def finish_step(self) -> float:
        show_gradients(self.observe_gradient, self.module.parameters())
        return 0.0

    def sync_buffers(self) -> None:
        """Do nothing: no other rank has buffers."""


class AxisParallelModel:
    """The parts of `Wrapped` that are equal wherever ranks communicate within forward and backward, in the axis groups of the mesh.

    Gradients are added up in place, so that nothing of a step that is interrupted can be kept.
    """

    observe_gradient: GradientObserver | None = None

    def __init__(self, model: nn.Module, group: Group, local_batch: LocalBatch | None) -> None:
        self.group, self._model, self._local_batch = group, model, local_batch
        self._waiting = WaitTimer(group.axis_groups.values())

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        self.waited()  # drop the seconds that evaluation and clipping have waited

    def local_batch(self, batch: Tensors) -> Tensors:
        return batch if self._local_batch is None else self._local_batch(batch)

    def waited(self) -> float:
        return self._waiting.lap()

    def sync_buffers(self) -> None:
        average_buffers(self._model, self.group)

    def release_memory(self) -> None:
        """Do nothing: no memory is kept that could be allocated again."""

    def exchange_buffer_bytes(self, passes: int) -> int:
        return 0


@torch.no_grad()
def average_buffers(model: nn.Module, group: Group) -> None:
    """Replace running statistics by their mean over all ranks. The mean of moving averages does not depend on when it is taken.
    Collective.
    """
    for buffer in saved_buffers(model):
        if group.world_size > 1 and buffer.is_floating_point():
            sum_ = buffer.double()  # a mask may be filled with the least number of its type
            group.sum(sum_).wait()
            buffer.copy_(sum_.div_(group.world_size))
