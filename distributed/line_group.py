"""A line as the process group that torch's distributed tensors speak through: what they send is counted, and waits, as everything else does.

Their collectives would wait for gloo itself, which forgets now and then to wake a call whose peer is gone. Only what they ask for is there:
torch's functional collectives, which come one by one or as lists ("coalesced").
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future, _register_process_group  # type: ignore[attr-defined]
from torch.futures import Future

from distributed.lines import Line


class LineGroup(dist.ProcessGroup):
    """Of CPU tensors. torch knows it by name until the world's group is destroyed."""

    def __init__(self, line: Line) -> None:
        super().__init__(line.rank, line.size)  # type: ignore[call-arg]
        self._line = line
        dist.distributed_c10d._world.pg_group_ranks[self] = {rank: place for place, rank in enumerate(line.ranks)}
        _register_process_group(self.group_name, self)  # type: ignore[arg-type]

    @property
    def group_name(self) -> str:  # type: ignore[override]
        return f"{self._line.process_group.group_name}, as line {id(self)}"

    def getBackendName(self) -> str:
        return "line"

    def allreduce(self, tensors: list[Tensor], options: Any = None) -> dist.Work:  # type: ignore[override]
        for tensor in tensors:
            self._line.reduce(tensor, options.reduceOp)
        return done()

    def allreduce_coalesced(self, tensors: list[Tensor], options: Any = None) -> dist.Work:
        return self.allreduce(tensors, options)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], options: Any = None) -> dist.Work:
        for output, part in zip(outputs, inputs, strict=True):
            self._line.gather(output.view(-1), part.view(-1))
        return done()

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], options: Any = None) -> dist.Work:
        """`options` asks for a sum: nothing else is ever asked for."""
        for output, parts in zip(outputs, inputs, strict=True):
            self._line.scatter_sum(output.view(-1), parts.view(-1))
        return done()


def done() -> dist.Work:
    """Says nothing of the tensors: torch keeps each work until its output is waited for, which may be never, and would keep them with it."""
    future: Future[Any] = Future()
    future.set_result(None)
    work: dist.Work = _create_work_from_future(future)
    return work
