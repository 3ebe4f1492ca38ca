"""A generation's process group, and the same face for a rank that is alone: who trains need not ask which it has."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.futures import Future

from distributed.abort import Fence, wait_for
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

    def sum(self, values: Tensor) -> Future[Tensor]:
        """`values` added up over the ranks, in place."""
        ...

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

    def transfer(self, operations: list[dist.P2POp]) -> None:
        """Start all, wait for all. A dead peer raises; a silent one is the fence's to name."""
        ...

    def process_group(self) -> dist.ProcessGroup | None:
        """torch's handle; None when alone."""
        ...

    def close(self) -> None: ...


class SoloGroup:
    """A world of one: nothing to talk about, no store, no sockets."""

    rank = 0
    world_size = 1

    def sum(self, values: Tensor) -> Future[Tensor]:
        future: Future[Tensor] = Future()
        future.set_result(values)
        return future

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        return lambda: values

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def send(self, tensor: Tensor, target: int) -> None:
        """Nobody to send to."""

    def receive(self, tensor: Tensor, source: int) -> None:
        """Nobody to receive from."""

    def transfer(self, operations: list[dist.P2POp]) -> None:
        """Nothing to transfer."""

    def process_group(self) -> dist.ProcessGroup | None:
        return None

    def close(self) -> None:
        """Nothing to close."""


class WorldGroup:
    """All ranks of one generation, over gloo, and NCCL for CUDA tensors."""

    def __init__(self, membership: Membership, fence: Fence) -> None:
        self.rank, self.world_size = membership.rank, membership.world_size
        self._fence = fence
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

    def sum(self, values: Tensor) -> Future[Tensor]:
        work: Any = dist.all_reduce(values, async_op=True)
        return self._fence.guard(work) if values.device.type == "cpu" else work.get_future().then(lambda sums: sums.value()[0])

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        future = self.sum(values)

        def finish() -> Tensor:
            future.wait()
            return values

        return finish

    def gather(self, value: Any) -> list[Any]:
        content = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        lengths = [int(length) for length in self._gather(torch.tensor([len(content)]))]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(content)] = content
        pieces = zip(self._gather(padded), lengths, strict=True)
        return [pickle.loads(piece[:length].numpy().tobytes()) for piece, length in pieces]

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Of CPU tensors of one shape."""
        found = [torch.empty_like(tensor) for _ in range(self.world_size)]
        self._fence.guard(dist.all_gather(found, tensor, async_op=True)).wait()
        return found

    def send(self, tensor: Tensor, target: int) -> None:
        self.transfer([dist.P2POp(dist.isend, tensor, target)])

    def receive(self, tensor: Tensor, source: int) -> None:
        self.transfer([dist.P2POp(dist.irecv, tensor, source)])

    def transfer(self, operations: list[dist.P2POp]) -> None:
        works = dist.batch_isend_irecv(operations)
        if all(operation.tensor.device.type == "cpu" for operation in operations):
            self._fence.wait(works)
        else:
            wait_for(works)

    def process_group(self) -> dist.ProcessGroup | None:
        return dist.group.WORLD

    def close(self) -> None:
        """Hazard: drop every reference to wrappers, losses and graphs first, or the peers wait out the time-out."""
        dist.destroy_process_group()
        self._store.close()


def join(membership: Membership, fence: Fence) -> Group:
    """Meet the other ranks of the generation. Once `fence` is struck, whatever waits here or in the group fails."""
    try:
        return SoloGroup() if membership.world_size == 1 else WorldGroup(membership, fence)
    finally:
        fence.leave()


def abandon_group() -> None:
    """Forget a group that broke. Its end waits for gloo's threads, which may never come: that is left to a thread of its own."""
    if dist.is_initialized():
        remains: list[object] = [dist.group.WORLD]
        dist.destroy_process_group()
        threading.Thread(target=remains.clear, name="group-end", daemon=True).start()
