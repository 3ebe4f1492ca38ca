"""The group of a world of one rank, so that training code never asks how large its world is."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.exposure import HostWaitClock
from paceline.distributed.process_group import PointToPoint
from paceline.distributed.reduction import GradientBucket, Reduction
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.distributed.traffic import NOTHING, WORLD, SentBytes, Traffic


class SoloGroup:
    """The group of a world of one rank: every call returns at once, and there are neither store nor sockets."""

    rank = 0
    world_size = 1
    axis_groups: Mapping[str, AxisGroup] = MappingProxyType({})
    reduction_groups: ReductionGroups | None = None

    def __init__(self) -> None:
        self.traffic, self.exposure = Traffic(), HostWaitClock()

    def sent(self) -> SentBytes:
        return NOTHING

    def sum(self, values: Tensor, *, along: str = WORLD, overlaps: bool = False) -> Future[Tensor]:
        future: Future[Tensor] = Future()
        future.set_result(values)
        return future

    def start_reduction(self, reduction: Reduction, bucket: GradientBucket, *, overlaps: bool = False) -> Future[Tensor]:
        return self.sum(bucket.values)

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        return lambda: values

    def start_gather(self, content: bytes, lengths: Sequence[int]) -> Callable[[], list[bytes]]:
        return lambda: [content]

    def all_gather_object(self, value: Any) -> list[Any]:
        return [value]

    def send(self, tensor: Tensor, target: int) -> None:
        """Do nothing: there is no other rank."""

    def receive(self, tensor: Tensor, source: int) -> None:
        """Do nothing: there is no other rank."""

    def transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> None:
        """Do nothing: there is no other rank."""

    def start_transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> PointToPoint:
        return PointToPoint((), ())

    def start_exchange(self, operations: list[dist.P2POp], then: Callable[[], list[dist.P2POp]], *, along: str = WORLD) -> Future[None]:
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def end_exchanges(self, exchanges: Sequence[Future[None]]) -> None:
        """Do nothing: no exchange was ever started."""

    def end_transfers(self, transfers: Sequence[PointToPoint]) -> None:
        """Do nothing: no transfer was ever started."""

    def wait_for_future(self, work: concurrent.futures.Future[Any]) -> None:
        concurrent.futures.wait([work])

    def process_group(self) -> dist.ProcessGroup | None:
        return None

    def barrier_and_leave(self) -> None:
        """Do nothing: there is no other rank."""

    def close(self) -> None:
        """Do nothing: there are no connections."""
