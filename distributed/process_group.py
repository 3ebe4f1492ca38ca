"""A generation's process group, and the same face for a rank that is alone: who trains need not ask which it has."""

from __future__ import annotations

import concurrent.futures
import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed.distributed_c10d import PrefixStore
from torch.futures import Future

from distributed.abort import Fence, wait_for
from distributed.calls import Call, aside
from distributed.errors import GenerationOverError, StoreRefusedError, StoreUnreachableError
from distributed.lines import Line, join_lines
from distributed.reach import Landmark
from distributed.store import CONNECT_TIMEOUT_SECONDS, FIRST_RETRY_SECONDS, Address, RendezvousStore
from distributed.timeouts import COLLECTIVE_SECONDS
from distributed.traffic import NOTHING, WORLD, Sent, Traffic, of_all_reduce, of_gather, of_transfer

COLLECTIVE_TIMEOUT = timedelta(seconds=COLLECTIVE_SECONDS)


class Membership(Address, Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def device(self) -> Literal["cpu", "cuda"]: ...


#: By axis of the mesh, all its lines of ranks.
Axes = Mapping[str, Sequence[Sequence[int]]]


class Transfer(NamedTuple):
    """Under way between this rank and others."""

    works: Sequence[dist.Work]
    operations: Sequence[dist.P2POp]


class Group(Protocol):
    rank: int
    world_size: int
    lines: Mapping[str, Line]  # along the axes of the mesh that were asked for; none when alone
    traffic: Traffic  # what this rank sends; `along` below says as which axis's it counts

    def sent(self) -> Sent:
        """Since this was asked last."""
        ...

    def sum(self, values: Tensor, *, along: str = WORLD, overlaps: bool = False) -> Future[Tensor]:
        """`values` added up over the ranks, in place. `overlaps`: the caller goes on computing rather than wait for it."""
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

    def transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> None:
        """Of every rank: start all, wait for all. A dead peer raises; a silent one is the fence's to name."""
        ...

    def start_transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> Transfer:
        """Begin to send and receive between some ranks."""
        ...

    def end_transfers(self, transfers: Sequence[Transfer]) -> None:
        """Wait for all of them: one wait costs less than several."""
        ...

    def attend(self, work: concurrent.futures.Future[Any]) -> None:
        """Wait for another thread of this rank, as long as the generation lasts."""
        ...

    def process_group(self) -> dist.ProcessGroup | None:
        """torch's handle; None when alone."""
        ...

    def part(self) -> None:
        """Wait until every rank is here: then it has all that it will ever get from this group, and the interpreter may end."""
        ...

    def close(self) -> None: ...


class SoloGroup:
    """A world of one: nothing to talk about, no store, no sockets."""

    rank = 0
    world_size = 1
    lines: Mapping[str, Line] = MappingProxyType({})

    def __init__(self) -> None:
        self.traffic = Traffic()

    def sent(self) -> Sent:
        return NOTHING

    def sum(self, values: Tensor, *, along: str = WORLD, overlaps: bool = False) -> Future[Tensor]:
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

    def transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> None:
        """Nothing to transfer."""

    def start_transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> Transfer:
        return Transfer((), ())

    def end_transfers(self, transfers: Sequence[Transfer]) -> None:
        """Nothing to wait for."""

    def attend(self, work: concurrent.futures.Future[Any]) -> None:
        concurrent.futures.wait([work])

    def process_group(self) -> dist.ProcessGroup | None:
        return None

    def part(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """Nothing to close."""


class WorldGroup:
    """All ranks that meet in `store`, over gloo, and NCCL for CUDA tensors."""

    def __init__(self, rank: int, world_size: int, device: torch.device, store: Store, fence: Fence, axes: Axes) -> None:
        self.rank, self.world_size = rank, world_size
        self._fence, self._device, self.traffic = fence, device, Traffic((*axes, WORLD))
        dist.init_process_group(
            backend="cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
        # Before the fence is complete: their sockets are the group's own.
        self.lines: Mapping[str, Line] = join_lines(axes, self.rank, fence, self.traffic)
        fence.complete()

    def sent(self) -> Sent:
        """NCCL's kernels run behind the host, which does not see them end; nor does anyone those sends of a pipeline that are waited for together."""
        overlapped = self._fence.calls.overlap.lap()
        return Sent(self.traffic.lap(), overlapped if self._device.type == "cpu" and "pipeline" not in self.lines else None)

    def sum(self, values: Tensor, *, along: str = WORLD, overlaps: bool = False) -> Future[Tensor]:
        call = self._fence.calls.begin("sum", values)
        if not overlaps:
            self._fence.calls.awaited = call
        return self._sum(values, call, along)

    def _sum(self, values: Tensor, call: Call, along: str) -> Future[Tensor]:
        self.traffic.add(along, of_all_reduce(values, self.world_size))
        work: Any = dist.all_reduce(self._fence.lent.lend(values), async_op=True)
        if values.device.type == "cpu":
            promise = self._fence.guard(work, call, values)
            self._fence.calls.overlap.follow(promise)
            return promise
        self._fence.calls.done(call)  # on a GPU nobody waits here, but where a value is looked at
        future: Future[Tensor] = work.get_future().then(lambda sums: sums.value()[0])
        return future

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        call = self._fence.calls.begin("sum", values)
        future = self._sum(values, call, WORLD)

        def finish() -> Tensor:
            with self._fence.calls.awaiting(call):
                future.wait()
                self._require_whole(values)
            return values

        return finish

    def _require_whole(self, *values: Tensor) -> None:
        """NCCL's kernels run behind, and an abort lets them end as if they had come to an end: what they leave then is not to be used."""
        devices = {tensor.device for tensor in values if tensor.device.type == "cuda"}
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        if devices and self._fence.struck.is_set():
            raise GenerationOverError("the generation is over: the group was broken off")

    def gather(self, value: Any) -> list[Any]:
        content = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        lengths = [int(length) for length in self._gather(torch.tensor([len(content)]))]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(content)] = content
        pieces = zip(self._gather(padded), lengths, strict=True)
        return [pickle.loads(piece[:length].numpy().tobytes()) for piece, length in pieces]

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Of CPU tensors of one shape."""
        self.traffic.add(WORLD, of_gather(tensor, self.world_size))
        found = [torch.empty_like(tensor) for _ in range(self.world_size)]
        call = self._fence.calls.begin("gather", tensor)
        lend = self._fence.lent.lend
        with self._fence.calls.awaiting(call):
            self._fence.guard(dist.all_gather([*map(lend, found)], lend(tensor), async_op=True), call, tensor).wait()
        return found

    def send(self, tensor: Tensor, target: int) -> None:
        with self._fence.calls.awaiting(aside(f"send to rank {target}")):
            self._transfer([dist.P2POp(dist.isend, tensor, target)], WORLD)

    def receive(self, tensor: Tensor, source: int) -> None:
        with self._fence.calls.awaiting(aside(f"receive from rank {source}")):
            self._transfer([dist.P2POp(dist.irecv, tensor, source)], WORLD)

    def transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> None:
        with self._fence.calls.awaiting(self._fence.calls.begin("exchange")):
            self._transfer(operations, along)

    def start_transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> Transfer:
        self.traffic.add(along, of_transfer(operations))
        return Transfer(dist.batch_isend_irecv(operations) if operations else (), operations)

    def end_transfers(self, transfers: Sequence[Transfer]) -> None:
        peers = ", ".join(map(str, sorted({operation.peer for transfer in transfers for operation in transfer.operations})))
        with self._fence.calls.awaiting(aside(f"transfer with rank {peers}")):
            self._end(transfers)

    def _transfer(self, operations: list[dist.P2POp], along: str) -> None:
        self._end([self.start_transfer(operations, along=along)])
        self._require_whole(*(operation.tensor for operation in operations))

    def _end(self, transfers: Sequence[Transfer]) -> None:
        works = [work for transfer in transfers for work in transfer.works]
        if all(operation.tensor.device.type == "cpu" for transfer in transfers for operation in transfer.operations):
            self._fence.wait(works)
        else:
            wait_for(works)

    def attend(self, work: concurrent.futures.Future[Any]) -> None:
        self._fence.attend(work)

    def process_group(self) -> dist.ProcessGroup | None:
        return dist.group.WORLD

    def part(self) -> None:
        self.sum(torch.zeros(1)).wait()
        self._fence.await_threads()

    def close(self) -> None:
        """Hazard: drop every reference to wrappers, losses and graphs first, or the peers wait out the time-out."""
        dist.destroy_process_group()


class GenerationGroup(WorldGroup):
    """Of one generation of a job: its ranks meet in a store of our own, and know where to ask for each other's machines."""

    def __init__(self, membership: Membership, fence: Fence, axes: Axes) -> None:
        self._store = meet(membership, fence)
        device = torch.device("cuda", membership.slot) if membership.device == "cuda" else torch.device("cpu")
        store = PrefixStore(f"g{membership.generation}", self._store)
        super().__init__(membership.rank, membership.world_size, device, store, fence, axes)
        self._landmark = Landmark(self._store.local_host)
        places = self.gather((self._landmark.place, fence.presence.at(self._store.local_host)))
        others = {rank: place for rank, place in enumerate(places) if rank != self.rank}
        fence.peers = {rank: landmark for rank, (landmark, _) in others.items()}
        fence.presences = {rank: presence for rank, (_, presence) in others.items()}

    def close(self) -> None:
        super().close()
        self._store.close()
        self._landmark.close()


def meet(membership: Membership, fence: Fence) -> RendezvousStore:
    """Everyone is alive and here before torch's own rendezvous, which no socket frees from waiting for one that died.

    A store that goes away comes back with its agent, and has forgotten who was there: a joiner must not be lost by that.
    """
    while True:
        store = reach_store(membership, fence)
        try:
            await_all(store, membership, fence)
        except StoreUnreachableError:
            store.close()
            if fence.struck.is_set():
                raise
        else:
            return store


def reach_store(membership: Membership, fence: Fence) -> RendezvousStore:
    """An agent that dies in the middle of a hello is no store that is not there."""
    deadline = time.monotonic() + CONNECT_TIMEOUT_SECONDS
    while True:
        try:
            return RendezvousStore(membership, cancelled=fence.struck)
        except StoreUnreachableError:
            if fence.struck.wait(FIRST_RETRY_SECONDS) or time.monotonic() > deadline:
                raise


def await_all(store: RendezvousStore, membership: Membership, fence: Fence) -> None:
    if fence.struck.is_set():  # before the store's socket was there to be shut down
        raise StoreRefusedError(f"generation {membership.generation} of job {membership.job_id} is over: a newer one has begun")
    arrived = f"g{membership.generation}/arrived"
    if store.add(arrived, 1) >= membership.world_size:
        store.set(f"{arrived}/all", b"")
    store.wait([f"{arrived}/all"])


def join(membership: Membership, fence: Fence, axes: Axes = MappingProxyType({})) -> Group:
    """Meet the other ranks of the generation. Once `fence` is struck, whatever waits here or in the group fails."""
    try:
        return SoloGroup() if membership.world_size == 1 else GenerationGroup(membership, fence, axes)
    finally:
        fence.leave()


class Remains:
    """A group that this rank is done with, until `drop`: while its sockets are open, a peer may still read what was sent to it."""

    def __init__(self, *groups: object) -> None:
        self._groups = list(groups)

    def drop(self) -> None:
        """The group's end waits for gloo's threads, which may never come where it broke: that is left to a thread of its own."""
        if self._groups:
            threading.Thread(target=self._groups.clear, name="group-end", daemon=True).start()


def set_aside_group() -> Remains:
    """Make room for the next group."""
    if not dist.is_initialized():
        return Remains()
    remains = Remains(*dist.distributed_c10d._world.pg_map)  # of the world, and of the lines in it
    dist.destroy_process_group()
    return remains
