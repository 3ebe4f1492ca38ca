"""Data parallelism with the same bits on any number of ranks: gradients are summed in one fixed binary tree (`tree_exchange.py`).

A step that is interrupted is not lost: the exchange copies, so the sums of subtrees stay as they were until the step is committed, and
each depends on its micro-batches alone. In the next generation every rank keeps the sums that it has (`training.state.PartialStep`), and
`assign_remaining` assigns what is missing; the tree is the same, and so are the bits. With `reproducible: false` gradients live in DDP's
buckets, which end with the group.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from paceline.distributed.process_group import Group
from paceline.parallelism.data_parallel.early_exchange import ExchangeTiming, ExchangeTrial
from paceline.parallelism.data_parallel.tree_exchange import TreeExchange
from paceline.parallelism.own_gradients import show_sums
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.running_statistics import RunningStatistics
from paceline.parallelism.wrapped import Sums, WholeModel


class Reproducible(WholeModel):
    """A whole model whose gradients are summed in the fixed tree. See `Wrapped`.

    Micro-batches may be computed in any order. The exchange leaves the sums of subtrees unchanged.
    """

    def __init__(self, model: nn.Module, group: Group) -> None:
        self.module, self._group, self._alone = model, group, group.world_size == 1
        self._statistics = RunningStatistics(model)
        self._parameters = trainable(model.parameters())
        self._tree = TreeExchange(group)
        self.trial: ExchangeTiming = ExchangeTrial()
        self._began = 0.0

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        self._tree.begin_step(assignment, lambda: [*self._parameters, *self._statistics.changes(1)], sums)
        self._statistics.begin_step()
        self._began = 0.0

    @contextlib.contextmanager
    def accumulate(self, index: int, *, final: bool) -> Iterator[None]:
        self._statistics.rewind()
        self._began = time.perf_counter()
        if final and not self._alone and self._parameters[0].device.type == "cpu" and self.trial.early:
            with self._sending_early(index):
                yield
        else:
            yield
            self._tree.put(index, [*map(take_gradient, self._parameters), *self._statistics.changes(self._tree.leaves)])

    @contextlib.contextmanager
    def _sending_early(self, index: int) -> Iterator[None]:
        """Give the gradients of this rank's last micro-batch to the exchange as backward computes them, the others and the changes of buffers after it."""
        self._tree.begin_last_leaf(index)
        hooks = [
            parameter.register_post_accumulate_grad_hook(functools.partial(self._send_gradient, member))  # type: ignore[no-untyped-call]
            for member, parameter in enumerate(self._parameters)
        ]
        try:
            yield
        except BaseException:
            self._tree.drop_last_leaf()
            raise
        finally:
            for hook in hooks:
                hook.remove()
        changes = self._statistics.changes(self._tree.leaves)
        of_parameters = len(self._parameters)
        self._tree.end_last_leaf(
            lambda member: take_gradient(self._parameters[member]) if member < of_parameters else changes[member - of_parameters]
        )

    def _send_gradient(self, member: int, parameter: Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        self._tree.put_tensor(member, take_gradient(parameter))

    def finish_step(self) -> float:
        show_sums(self.observe_gradient, self._parameters, self._tree.own_sums)
        mark = self._group.exposure.mark()
        sums = self._tree.finish_step()
        ended = time.perf_counter()
        if self._began and not self._alone:
            self.trial.timed(ended - self._began)
        for parameter, sum_ in zip(self._parameters, sums, strict=False):
            parameter.grad = laid_out_as(parameter, sum_)
        self._statistics.apply(sums[len(self._parameters) :], self._tree.leaves)
        return 0.0 if self._alone else self._group.exposure.since(mark)

    def sync_buffers(self) -> None:
        """Do nothing: every rank applies the same changes to its buffers."""

    def release_memory(self) -> None:
        self._tree.release_memory()


def trainable(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Return the parameters that require gradients, ordered by data type."""
    return sorted((parameter for parameter in parameters if parameter.requires_grad), key=lambda parameter: str(parameter.dtype))


def take_gradient(parameter: nn.Parameter) -> Tensor:
    """Move the gradient out of the parameter, without a copy; backward then allocates a new one."""
    gradient, parameter.grad = parameter.grad, None
    return or_zeros(gradient, parameter)


def or_zeros(gradient: Tensor | None, parameter: nn.Parameter) -> Tensor:
    """Return `gradient`, or zeros for a parameter that was not used."""
    return torch.zeros_like(parameter) if gradient is None else gradient


def laid_out_as(parameter: nn.Parameter, gradient: Tensor) -> Tensor:
    """Return `gradient`, which is row-major, in the parameter's own memory order, such as `channels_last`: torch's fused optimizers on a CPU go by
    memory, and would update each element with the gradient of another one."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
