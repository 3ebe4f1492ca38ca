"""Sharded models with the same bits on any number of replicas: gradients are summed over replicas in the fixed binary tree
(`data_parallel/tree_exchange.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paceline.distributed.process_group import Group
from paceline.parallelism.communication.reducers import BackendReducer
from paceline.parallelism.data_parallel.reproducible import take_gradient, trainable
from paceline.parallelism.data_parallel.tree_exchange import TreeExchange
from paceline.parallelism.fully_sharded.sharding import FullySharded
from paceline.parallelism.gradients import all_reduce_flat
from paceline.parallelism.mesh import local_tensor
from paceline.parallelism.own_gradients import show_sums
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.running_statistics import RunningStatistics
from paceline.parallelism.wrapped import LocalBatch, Sums


class ReproducibleShards(FullySharded):
    """A sharded model with the same bits on any number of replicas, each of the same number of shards. See `Wrapped`.

    The ranks of a replica compute neighbouring micro-batches in one pass, which sums their gradients in an order of its own
    (`Degrees.assignment`); passes are the leaves of the tree. Nothing of a step that is interrupted is kept.
    """

    def __init__(self, model: nn.Module, group: Group, local_batch: LocalBatch | None) -> None:
        super().__init__(model, group, local_batch, BackendReducer(group))
        self._axis_group = group.axis_groups["shard"]
        self._parameters = trainable(model.parameters())
        self._statistics = RunningStatistics(model)
        self._tree = TreeExchange(group)

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        super().begin_step(assignment, sums)
        self._assignment, self._passes, self._passed = assignment, assignment.pass_assignment(self._axis_group.size), 0
        self._tree.begin_step(self._passes, lambda: [*map(local_tensor, self._parameters), *self._statistics.changes(1)], {})
        self._statistics.begin_step()

    @contextlib.contextmanager
    def accumulate(self, index: int, *, final: bool) -> Iterator[None]:
        with super().accumulate(index, final=final):
            yield
        number, self._passed = self._passed, self._passed + 1
        gradients = [local_tensor(take_gradient(parameter)) for parameter in self._parameters]
        changes = self._changes(counts=number < len(self._assignment.own))
        if number < len(self._passes.own):  # else this replica has one pass less, and only took part in the collectives
            self._tree.put(self._passes.own[number], [*gradients, *changes])

    def _changes(self, *, counts: bool) -> list[Tensor]:
        """Return the changes of running statistics by this pass, summed over the shards. `counts`: this rank had a micro-batch in it."""
        own = self._statistics.changes(self._assignment.micro_batches)
        self._statistics.rewind()
        changes = own if counts else [torch.zeros_like(change) for change in own]
        all_reduce_flat(self._axis_group, changes)
        return changes

    def finish_step(self) -> float:
        show_sums(self.observe_gradient, self._parameters, self._tree.own_sums)
        mark = self.group.exposure.mark()
        sums = self._tree.finish_step()
        for parameter, sum_ in zip(self._parameters, sums, strict=False):
            parameter.grad = as_sharded(parameter, sum_)
        self._statistics.apply(sums[len(self._parameters) :], self._assignment.micro_batches)
        return self.group.exposure.since(mark)

    def sync_buffers(self) -> None:
        """Do nothing: every rank applies the same changes to its buffers."""

    def release_memory(self) -> None:
        self._tree.release_memory()


def as_sharded(parameter: nn.Parameter, part: Tensor) -> DTensor:
    """Return the DTensor that is sharded like `parameter` and of which this rank holds `part`."""
    assert isinstance(parameter, DTensor)
    shape, stride = parameter.shape, parameter.stride()
    return DTensor.from_local(part, parameter.device_mesh, parameter.placements, run_check=False, shape=shape, stride=stride)
