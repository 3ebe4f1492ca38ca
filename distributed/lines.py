"""The ranks along one axis of the mesh: those that differ from this one in nothing else.

Sharded parameters are put together and gradients added up along a line. Its calls are numbered with those of the whole group, and on a
CPU nobody waits for gloo itself but for the fence's promises, so that a dead or silent peer frees a rank here as anywhere else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from distributed.abort import Fence
from distributed.calls import Call
from distributed.traffic import Traffic, of_all_reduce, of_gather


class Line:
    """`ranks` of the world, ascending; `waited` are the seconds that this rank has done nothing but wait in the line."""

    def __init__(
        self, axis: str, ranks: Sequence[int], rank: int, process_group: dist.ProcessGroup, fence: Fence, traffic: Traffic
    ) -> None:
        self.axis, self.ranks, self.rank = axis, tuple(ranks), tuple(ranks).index(rank)
        self.process_group, self._fence, self._traffic = process_group, fence, traffic
        self.waited = 0.0

    @property
    def size(self) -> int:
        return len(self.ranks)

    def sum(self, values: Tensor) -> Tensor:
        """`values` added up over the line, in place."""
        return self.reduce(values, dist.ReduceOp.SUM)

    def reduce(self, values: Tensor, how: Any) -> Tensor:
        """All ranks' `values` made one as torch's ReduceOp `how` says, in place."""
        self._traffic.add(self.axis, of_all_reduce(values, self.size))
        with self._call("reduction along a line", values) as call:
            if values.device.type == "cpu":
                work: Any = dist.all_reduce(self._fence.lent.lend(values), how, group=self.process_group, async_op=True)
                self._fence.guard(work, call, values).wait()
            else:
                dist.all_reduce(values, how, group=self.process_group)
        return values

    def gather(self, output: Tensor, part: Tensor) -> None:
        """Everyone's `part` (n) end to end in `output` (size * n); it may be a slice of `output`."""
        self._traffic.add(self.axis, of_gather(part, self.size))
        with self._call("gather along a line", part) as call:
            if part.device.type == "cpu":
                lend = self._fence.lent.lend
                work: Any = dist.all_gather_single(lend(output), lend(part), group=self.process_group, async_op=True)
                self._fence.guard(work, call, output).wait()
            else:
                dist.all_gather_single(output, part, group=self.process_group)

    def scatter_sum(self, output: Tensor, parts: Tensor) -> None:
        """Into `output` (n) the sum of everyone's `parts` (size * n) for this rank, added up in the order of the ranks."""
        self._traffic.add(self.axis, of_gather(output, self.size))
        with self._call("reduce-scatter along a line", parts):
            if parts.device.type == "cpu":
                self._exchange_and_add(output, parts)
            else:
                dist.reduce_scatter_single(output, parts, group=self.process_group)

    def _exchange_and_add(self, output: Tensor, parts: Tensor) -> None:
        """gloo's own reduce-scatter takes 1.8 times as long as its all-reduce, plain transfers half as long.

        In the line's own group: where a rank beyond the line dies, gloo's group of the world stands still for all, and nobody would hear of it.
        """
        pieces = parts.view(self.size, -1)
        received = [torch.empty_like(output) if place != self.rank else pieces[place] for place in range(self.size)]
        operations = [dist.P2POp(dist.isend, pieces[place], peer, self.process_group) for place, peer in self._peers()]
        operations += [dist.P2POp(dist.irecv, received[place], peer, self.process_group) for place, peer in self._peers()]
        self._fence.wait(dist.batch_isend_irecv(operations))
        torch.add(received[0], received[1], out=output)
        for piece in received[2:]:
            output.add_(piece)

    def _peers(self) -> Iterator[tuple[int, int]]:
        """(place in the line, rank)"""
        return ((place, peer) for place, peer in enumerate(self.ranks) if place != self.rank)

    @contextlib.contextmanager
    def _call(self, kind: str, tensor: Tensor) -> Iterator[Call]:
        """On a GPU the host does not wait here: the time shows where a value is looked at."""
        call, started = self._fence.calls.begin(kind, tensor), time.perf_counter()
        with self._fence.calls.awaiting(call):
            yield call
        self.waited += time.perf_counter() - started


class Waiting:
    """What a rank has waited in some lines, since it was asked last."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines, self._before = tuple(lines), 0.0

    def lap(self) -> float:
        before, self._before = self._before, sum(line.waited for line in self._lines)
        return self._before - before


def join_lines(axes: Mapping[str, Sequence[Sequence[int]]], rank: int, fence: Fence, traffic: Traffic) -> dict[str, Line]:
    """This rank's line along each axis. Every rank makes the groups of all lines, in the same order; one that holds the whole world
    uses the world's group."""
    found = {}
    for axis, lines in axes.items():
        for ranks in lines:
            whole = len(ranks) == dist.get_world_size()
            group = dist.group.WORLD if whole else dist.new_group(list(ranks))
            if rank in ranks:
                assert isinstance(group, dist.ProcessGroup)
                found[axis] = Line(axis, ranks, rank, group, fence, traffic)
    return found
