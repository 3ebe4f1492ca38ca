"""A generation's process group, and the same face for a rank that is alone: who trains need not ask which it has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

from distributed.abort import Fence
from distributed.errors import StoreRefusedError
from distributed.store import Address, RendezvousStore

#: For a peer that is silent rather than dead; a dead one closes its sockets and is noticed at once.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)


class Membership(Address, Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def device(self) -> Literal["cpu", "cuda"]: ...


class Group(Protocol):
    rank: int
    world_size: int

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        """Begin to add up `values` over the ranks, in place; call the answer to wait for it."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Everyone's value, by rank, on every rank. Small picklable objects of our own."""
        ...

    def send(self, tensor: Tensor, target: int) -> None:
        """To one rank, which calls `receive`; contiguous."""
        ...

    def receive(self, tensor: Tensor, source: int) -> None:
        """Into `tensor`, contiguous, what `source` sends."""
        ...

    def process_group(self) -> dist.ProcessGroup | None:
        """torch's handle; None when alone."""
        ...

    def close(self) -> None: ...


class SoloGroup:
    """A world of one: nothing to talk about, no store, no sockets."""

    rank = 0
    world_size = 1

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        return lambda: values

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def send(self, tensor: Tensor, target: int) -> None:
        """Nobody to send to."""

    def receive(self, tensor: Tensor, source: int) -> None:
        """Nobody to receive from."""

    def process_group(self) -> dist.ProcessGroup | None:
        return None

    def close(self) -> None:
        """Nothing to close."""


class WorldGroup:
    """All ranks of one generation, over gloo, and NCCL for CUDA tensors."""

    def __init__(self, membership: Membership, fence: Fence) -> None:
        self.rank, self.world_size = membership.rank, membership.world_size
        self._store = RendezvousStore(membership, cancelled=fence.struck)
        self._meet(membership, fence)
        dist.init_process_group(
            backend="cpu:gloo,cuda:nccl" if membership.device == "cuda" else "gloo",
            store=PrefixStore(f"g{membership.generation}", self._store),
            rank=membership.rank,
            world_size=membership.world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=torch.device("cuda", membership.slot) if membership.device == "cuda" else None,
        )
        fence.complete()

    def _meet(self, membership: Membership, fence: Fence) -> None:
        """Everyone is alive and here before torch's own rendezvous, which no socket frees from waiting for one that died."""
        if fence.struck.is_set():  # before the store's socket was there to be shut down
            raise StoreRefusedError(f"generation {membership.generation} of job {membership.job_id} is over: a newer one has begun")
        arrived = f"g{membership.generation}/arrived"
        if self._store.add(arrived, 1) == membership.world_size:
            self._store.set(f"{arrived}/all", b"")
        self._store.wait([f"{arrived}/all"])

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        work = dist.all_reduce(values, async_op=True)

        def finish() -> Tensor:
            assert work is not None
            work.wait()
            return values

        return finish

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def send(self, tensor: Tensor, target: int) -> None:
        dist.send(tensor, target)

    def receive(self, tensor: Tensor, source: int) -> None:
        dist.recv(tensor, source)

    def process_group(self) -> dist.ProcessGroup | None:
        return dist.group.WORLD

    def close(self) -> None:
        """Hazard: drop every reference to wrappers, losses and graphs first, or the peers wait out the time-out."""
        leave_group()
        self._store.close()


def join(membership: Membership, fence: Fence) -> Group:
    """Meet the other ranks of the generation. Once `fence` is struck, whatever waits here or in the group fails."""
    try:
        return SoloGroup() if membership.world_size == 1 else WorldGroup(membership, fence)
    finally:
        fence.leave()


def leave_group() -> None:
    """Whatever torch still holds of a group, also of one that never stood."""
    if dist.is_initialized():
        dist.destroy_process_group()
