"""The process group of one generation, as training code sees it: a protocol, so that no caller asks how large its world is.

`world_group` is the group of several ranks, `solo_group` that of one; `joining` decides which it is.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.exposure import WaitClock
from paceline.distributed.reduction import GradientBucket, Reduction
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.distributed.traffic import WORLD, SentBytes, Traffic

#: For each axis of the mesh, the ranks of all its axis groups.
Axes = Mapping[str, Sequence[Sequence[int]]]


class PointToPoint(NamedTuple):
    """Point-to-point operations that were started and not yet waited for."""

    works: Sequence[dist.Work]
    operations: Sequence[dist.P2POp]


class Group(Protocol):
    """All ranks of one generation, for communication. Every rank makes the same collective calls in the same order.

    Collective calls and waits raise `GenerationOverError` once the generation is aborted, and torch's RuntimeError when a peer closes its
    connection. A peer that stays silent is detected by the watchdog, which aborts the group.
    """

    rank: int
    world_size: int
    axis_groups: Mapping[str, AxisGroup]  # by axis of the mesh, for the axes that were asked for; empty in a world of one
    reduction_groups: ReductionGroups | None  # of the replicate axis, for a `Reduction` alone, where they were asked for
    traffic: Traffic  # what this rank sends; `along` below names the axis that it is counted for

    @property
    def exposure(self) -> WaitClock:
        """Measures how long this rank's computing stands still for the calls of the training thread."""
        ...

    def sent(self) -> SentBytes:
        """Return the bytes that this rank has sent since the last call of `sent`."""
        ...

    def sum(self, values: Tensor, *, along: str = WORLD, overlaps: bool = False) -> Future[Tensor]:
        """Sum `values` over all ranks, in place. Collective. `overlaps`: the caller computes meanwhile, so its wait is not counted as
        waiting.
        """
        ...

    def start_reduction(self, reduction: Reduction, bucket: GradientBucket, *, overlaps: bool = False) -> Future[Tensor]:
        """Start to sum a bucket by `reduction`, behind those that were started before; the future is of its values. Collective. `overlaps`: as in
        `sum`.
        """
        ...

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        """Start to sum `values` over all ranks, in place, and return a function that waits for the result and returns it. Collective."""
        ...

    def start_gather(self, content: bytes, lengths: Sequence[int]) -> Callable[[], list[bytes]]:
        """Start to bring the `content` of each rank, of `lengths` bytes by rank, to all ranks, and return a function that waits for the contents
        and returns them by rank. Collective; any thread may wait.
        """
        ...

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the `value` of every rank, in the order of the ranks, on every rank. Collective. Values are pickled: small objects of
        our own.
        """
        ...

    def send(self, tensor: Tensor, target: int) -> None:
        """Send a contiguous tensor to rank `target`, which calls `receive`, and wait until it is sent."""
        ...

    def receive(self, tensor: Tensor, source: int) -> None:
        """Receive into the contiguous `tensor` what rank `source` sends, and wait for it."""
        ...

    def transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> None:
        """Start all point-to-point operations of this rank and wait for them. Collective: ranks without operations call it too."""
        ...

    def start_transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> PointToPoint:
        """Start point-to-point operations between some ranks and return them for `end_transfers`. Not collective."""
        ...

    def start_exchange(self, operations: list[dist.P2POp], then: Callable[[], list[dist.P2POp]], *, along: str = WORLD) -> Future[None]:
        """Start `operations`; once they are done, call `then` in another thread and start what it returns. The future is done when that is.

        Not collective. For CPU tensors only: each operation needs a tag that no other one between the two ranks has meanwhile.
        """
        ...

    def end_exchanges(self, exchanges: Sequence[Future[None]]) -> None:
        """Wait for what `start_exchange` has started. Collective: ranks that have started nothing call it too."""
        ...

    def end_transfers(self, transfers: Sequence[PointToPoint]) -> None:
        """Wait for all of `transfers`; one wait for several transfers costs less than several waits."""
        ...

    def wait_for_future(self, work: concurrent.futures.Future[Any]) -> None:
        """Wait until another thread of this rank is done with `work`. Raises `GenerationOverError` if the generation is aborted before
        that.
        """
        ...

    def process_group(self) -> dist.ProcessGroup | None:
        """Return torch's process group of all ranks, or None for a world of one."""
        ...

    def barrier_and_leave(self) -> None:
        """Wait until every rank has come here and gloo's threads have released all tensors; then the interpreter may exit. Collective."""
        ...

    def close(self) -> None: ...
