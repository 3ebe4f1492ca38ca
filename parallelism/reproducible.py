"""Data parallelism that is the same to the last bit on any number of ranks: gradients are added up in one fixed tree (`tree_exchange.py`).

A step that breaks off is not lost: the exchange copies, so the subtree sums stay what they were until the step is committed, and each depends on its
micro-batches alone. In the next generation they stay with who has them (`training.state.PartialStep`) and `deal_around` shares out what is
missing; the tree, and so the bits, are the same. With `reproducible: false` they live in DDP's buckets, which go with the group.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from distributed.process_group import Group
from parallelism.data_parallel import OwnPart, Sums, WholeModel
from parallelism.fully_sharded import FullySharded
from parallelism.gradients import add_up
from parallelism.mesh import local_part
from parallelism.plan import Deal
from parallelism.running_statistics import RunningStatistics
from parallelism.tree_exchange import TreeExchange


class Reproducible(WholeModel):
    """See `Wrapped`. Micro-batches may come in any order; the sums are left as they were before the exchange."""

    def __init__(self, model: nn.Module, group: Group) -> None:
        self.module, self._alone = model, group.world_size == 1
        self._statistics = RunningStatistics(model)
        self._parameters = learning(model.parameters())
        self._tree = TreeExchange(group)

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        self._tree.begin_step(deal, lambda: [*self._parameters, *self._statistics.changes(1)], sums)
        self._statistics.begin_step()

    @contextlib.contextmanager
    def accumulate(self, index: int, *, final: bool) -> Iterator[None]:
        self._statistics.rewind()
        yield
        self._tree.put(index, [*map(take_gradient, self._parameters), *self._statistics.changes(self._tree.leaves)])

    def finish_step(self) -> float:
        started = time.perf_counter()
        sums = self._tree.finish_step()
        for parameter, sum_ in zip(self._parameters, sums, strict=False):
            parameter.grad = sum_
        self._statistics.apply(sums[len(self._parameters) :], self._tree.leaves)
        return 0.0 if self._alone else time.perf_counter() - started

    def settle_buffers(self) -> None:
        """They are everyone's already."""

    def let_go(self) -> None:
        self._tree.let_go()


class ReproducibleShards(FullySharded):
    """The same on any number of replicas of a model in so many parts. A pass adds up within a replica, in an order of its own, what neighbouring
    micro-batches give (`Degrees.deal`): passes are the leaves of the tree. Nothing of a step that breaks off is kept."""

    def __init__(self, model: nn.Module, group: Group, own_part: OwnPart | None) -> None:
        super().__init__(model, group, own_part)
        self._line = group.lines["shard"]
        self._parameters = learning(model.parameters())
        self._statistics = RunningStatistics(model)
        self._tree = TreeExchange(group)

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        super().begin_step(deal, sums)
        self._deal, self._passes, self._passed = deal, deal.of_passes(self._line.size), 0
        self._tree.begin_step(self._passes, lambda: [*map(local_part, self._parameters), *self._statistics.changes(1)], {})
        self._statistics.begin_step()

    @contextlib.contextmanager
    def accumulate(self, index: int, *, final: bool) -> Iterator[None]:
        with super().accumulate(index, final=final):
            yield
        number, self._passed = self._passed, self._passed + 1
        gradients = [local_part(take_gradient(parameter)) for parameter in self._parameters]
        changes = self._changes(counts=number < len(self._deal.own))
        if number < len(self._passes.own):  # else this replica has a pass less, and has only kept step with the others
            self._tree.put(self._passes.own[number], [*gradients, *changes])

    def _changes(self, *, counts: bool) -> list[Tensor]:
        """To running statistics, by this pass of all parts; `counts`: this rank had a micro-batch in it."""
        own = self._statistics.changes(self._deal.micro_batches)
        self._statistics.rewind()
        changes = own if counts else [torch.zeros_like(change) for change in own]
        add_up(self._line, changes)
        return changes

    def finish_step(self) -> float:
        started = time.perf_counter()
        sums = self._tree.finish_step()
        for parameter, sum_ in zip(self._parameters, sums, strict=False):
            parameter.grad = part_of(parameter, sum_)
        self._statistics.apply(sums[len(self._parameters) :], self._deal.micro_batches)
        return time.perf_counter() - started

    def settle_buffers(self) -> None:
        """They are everyone's already."""

    def let_go(self) -> None:
        self._tree.let_go()


def learning(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Those that have gradients, by data type."""
    return sorted((parameter for parameter in parameters if parameter.requires_grad), key=lambda parameter: str(parameter.dtype))


def take_gradient(parameter: nn.Parameter) -> Tensor:
    """Out of the parameter, without a copy: backward leaves a tensor of its own where it finds none."""
    gradient, parameter.grad = parameter.grad, None
    return or_zeros(gradient, parameter)


def or_zeros(gradient: Tensor | None, parameter: nn.Parameter) -> Tensor:
    """A parameter that was not used counts as one with a zero gradient."""
    return torch.zeros_like(parameter) if gradient is None else gradient


def part_of(parameter: nn.Parameter, part: Tensor) -> DTensor:
    """This rank's part of a tensor that is cut as `parameter` is."""
    assert isinstance(parameter, DTensor)
    shape, stride = parameter.shape, parameter.stride()
    return DTensor.from_local(part, parameter.device_mesh, parameter.placements, run_check=False, shape=shape, stride=stride)
