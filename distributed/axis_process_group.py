"""An axis group as a torch process group, for DTensor's collectives: what they send is counted, and their waits can be aborted.

DTensor's collectives would wait for gloo itself, which now and then does not wake a call whose peer has died. Only the calls that torch's
functional collectives make are implemented; they come one by one or as lists ("coalesced").
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from paceline.distributed import torch_private
from paceline.distributed.axis_groups import AxisGroup


class AxisProcessGroup(dist.ProcessGroup):
    """A process group of CPU tensors that forwards to an `AxisGroup`. torch knows it by name until the world's group is destroyed."""

    def __init__(self, axis_group: AxisGroup) -> None:
        super().__init__(axis_group.rank, axis_group.size)  # type: ignore[call-arg]
        self._axis_group = axis_group
        torch_private.register_group(self, self.group_name, axis_group.ranks)

    @property
    def group_name(self) -> str:  # type: ignore[override]
        return f"{self._axis_group.process_group.group_name}, as axis group {id(self)}"

    def getBackendName(self) -> str:
        return "axis"

    def allreduce(self, tensors: list[Tensor], options: Any = None) -> dist.Work:  # type: ignore[override]
        for tensor in tensors:
            self._axis_group.all_reduce(tensor, options.reduceOp)
        return done()

    def allreduce_coalesced(self, tensors: list[Tensor], options: Any = None) -> dist.Work:
        return self.allreduce(tensors, options)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], options: Any = None) -> dist.Work:
        for output, part in zip(outputs, inputs, strict=True):
            self._axis_group.all_gather(output.view(-1), part.view(-1))
        return done()

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], options: Any = None) -> dist.Work:
        """Reduce-scatter each pair of tensors. `options` is ignored: torch asks for sums only."""
        for output, parts in zip(outputs, inputs, strict=True):
            self._axis_group.reduce_scatter(output.view(-1), parts.view(-1))
        return done()


def done() -> dist.Work:
    """Return a finished work without a result.

    torch keeps each work until its output is waited for, possibly for ever; a result would keep the tensors in memory as long.
    """
    future: Future[Any] = Future()
    future.set_result(None)
    return torch_private.work_of(future)
