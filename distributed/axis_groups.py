"""The process groups along the axes of the mesh.

An axis group has the ranks that differ from each other in their coordinate along one axis only; sharded parameters are gathered and
gradients summed in it. Its calls are numbered together with the calls of the whole group. On a CPU the training thread waits for the
aborter's futures instead of gloo, so that a dead or silent peer frees this rank as in any other wait.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.distributed.abort import GroupAborter, wait_for
from paceline.distributed.calls import Call, Calls
from paceline.distributed.exposure import HostWaitClock, WaitClock
from paceline.distributed.traffic import Traffic, all_reduce_bytes, gather_bytes


class AxisGroup:
    """The ranks along one axis of the mesh that include this rank, and their process group.

    `ranks`: their world ranks, ascending. `rank`: this rank's index among them. `waited`: seconds that this rank has only waited in the
    group's calls.
    """

    def __init__(
        self,
        axis: str,
        ranks: Sequence[int],
        rank: int,
        process_group: dist.ProcessGroup,
        aborter: GroupAborter,
        traffic: Traffic,
        calls: Calls | None = None,
        exposure: WaitClock = HostWaitClock(),
    ) -> None:
        """`calls`: numbers of this group's calls by themselves, if another thread than the training thread makes them. `exposure`: measures the training
        thread's waits.
        """
        self.axis, self.ranks, self.rank = axis, tuple(ranks), tuple(ranks).index(rank)
        self._calls, self._exposure = calls or aborter.calls, exposure
        self.process_group, self._aborter, self._traffic = process_group, aborter, traffic
        self.waited = 0.0

    @property
    def size(self) -> int:
        return len(self.ranks)

    def sum(self, values: Tensor) -> Tensor:
        """Sum `values` over the axis group, in place, and return them. Collective."""
        return self.all_reduce(values, dist.ReduceOp.SUM)

    def all_reduce(self, values: Tensor, how: Any) -> Tensor:
        """Combine the `values` of all ranks by torch's ReduceOp `how`, in place on every rank, and return them. Collective."""
        self._traffic.add(self.axis, all_reduce_bytes(values, self.size))
        with self._call("reduction along an axis", values) as call:
            if values.device.type == "cpu":
                work: Any = dist.all_reduce(self._aborter.in_flight.alias(values), how, group=self.process_group, async_op=True)
                self._aborter.abortable_future(work, call, values).wait()
            else:
                dist.all_reduce(values, how, group=self.process_group)
        return values

    def all_gather(self, output: Tensor, part: Tensor) -> None:
        """Concatenate the `part` (n) of every rank into `output` (size * n). `part` may be a slice of `output`. Collective."""
        self._traffic.add(self.axis, gather_bytes(part, self.size))
        with self._call("gather along an axis", part) as call:
            if part.device.type == "cpu":
                alias = self._aborter.in_flight.alias
                work: Any = dist.all_gather_single(alias(output), alias(part), group=self.process_group, async_op=True)
                self._aborter.abortable_future(work, call, output).wait()
            else:
                dist.all_gather_single(output, part, group=self.process_group)

    def reduce_scatter(self, output: Tensor, parts: Tensor) -> None:
        """Write into `output` (n) this rank's slice of the sum of all ranks' `parts` (size * n). Collective. Ranks are added in order."""
        self._traffic.add(self.axis, gather_bytes(output, self.size))
        with self._call("reduce-scatter along an axis", parts):
            if parts.device.type == "cpu":
                self._exchange_and_add(output, parts)
            else:
                dist.reduce_scatter_single(output, parts, group=self.process_group)

    def start_exchange(
        self, sends: Sequence[tuple[Tensor, int]], target: int, receives: Sequence[tuple[Tensor, int]], source: int
    ) -> Callable[[], None]:
        """Start to send tensors on the host to the world rank `target` and to receive some from `source`, each with its tag.

        Returns a function that waits for all of them, in the thread that calls it. For threads that an abort may leave waiting; it has no
        number, so the messages must tell by themselves what they are.
        """
        works: list[Any] = [dist.isend(tensor, target, self.process_group, tag) for tensor, tag in sends]
        works += [dist.irecv(tensor, source, self.process_group, tag) for tensor, tag in receives]
        self._traffic.add(self.axis, sum(tensor.nbytes for tensor, _ in sends))

        def wait() -> None:
            started = time.perf_counter()
            wait_for(works)
            self.waited += time.perf_counter() - started

        return wait

    def _exchange_and_add(self, output: Tensor, parts: Tensor) -> None:
        """Reduce-scatter by plain transfers: gloo's own takes 1.8 times as long as its all-reduce, transfers take half as long.

        The transfers use the axis group's own process group: where a rank outside of it dies, gloo's group of the world stops for all
        ranks without an error.
        """
        pieces = parts.view(self.size, -1)
        received = [torch.empty_like(output) if place != self.rank else pieces[place] for place in range(self.size)]
        operations = [dist.P2POp(dist.isend, pieces[place], peer, self.process_group) for place, peer in self._peers()]
        operations += [dist.P2POp(dist.irecv, received[place], peer, self.process_group) for place, peer in self._peers()]
        self._aborter.wait(dist.batch_isend_irecv(operations))
        torch.add(received[0], received[1], out=output)
        for piece in received[2:]:
            output.add_(piece)

    def _peers(self) -> Iterator[tuple[int, int]]:
        """Yield (index in the axis group, world rank) for every other rank."""
        return ((place, peer) for place, peer in enumerate(self.ranks) if place != self.rank)

    @contextlib.contextmanager
    def _call(self, kind: str, tensor: Tensor) -> Iterator[Call]:
        """Number a call and count the seconds of its wait. On a GPU they are known later (`WaitClock.collect`)."""
        call, mark = self._calls.begin(kind, tensor), self._exposure.mark()
        with self._calls.awaiting(call):
            yield call
        self.waited += self._exposure.since(mark)


class WaitTimer:
    """Measures how long this rank has waited in some axis groups."""

    def __init__(self, axis_groups: Iterable[AxisGroup]) -> None:
        self._axis_groups, self._before = tuple(axis_groups), 0.0

    def lap(self) -> float:
        """Return the seconds waited since the last call of `lap`."""
        before, self._before = self._before, sum(axis_group.waited for axis_group in self._axis_groups)
        return self._before - before


def create_axis_groups(
    axes: Mapping[str, Sequence[Sequence[int]]], rank: int, aborter: GroupAborter, traffic: Traffic, exposure: WaitClock
) -> dict[str, AxisGroup]:
    """Create the process groups of all axes and return this rank's group for each axis.

    Every rank creates all of them, in the same order. An axis group that contains the whole world uses the world's process group.
    """
    found = {}
    for axis, rank_lists in axes.items():
        for ranks in rank_lists:
            whole = len(ranks) == dist.get_world_size()
            group = dist.group.WORLD if whole else dist.new_group(list(ranks))
            if rank in ranks:
                assert isinstance(group, dist.ProcessGroup)
                found[axis] = AxisGroup(axis, ranks, rank, group, aborter, traffic, exposure=exposure)
    return found
