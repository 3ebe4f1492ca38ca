"""A generation's process group, and the same face for a rank that is alone: who trains need not ask which it has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

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

    def process_group(self) -> dist.ProcessGroup | None:
        return None

    def close(self) -> None:
        """Nothing to close."""


class WorldGroup:
    """All ranks of one generation, over gloo, and NCCL for CUDA tensors."""

    def __init__(self, membership: Membership) -> None:
        self.rank, self.world_size = membership.rank, membership.world_size
        self._store = RendezvousStore(membership)
        dist.init_process_group(
            backend="cpu:gloo,cuda:nccl" if membership.device == "cuda" else "gloo",
            store=PrefixStore(f"g{membership.generation}", self._store),
            rank=membership.rank,
            world_size=membership.world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=torch.device("cuda", membership.slot) if membership.device == "cuda" else None,
        )

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

    def process_group(self) -> dist.ProcessGroup | None:
        return dist.group.WORLD

    def close(self) -> None:
        """Hazard: drop every reference to wrappers, losses and graphs first, or the peers wait out the time-out."""
        dist.destroy_process_group()
        self._store.close()


def join(membership: Membership) -> Group:
    """Meet the other ranks of the generation."""
    return SoloGroup() if membership.world_size == 1 else WorldGroup(membership)
