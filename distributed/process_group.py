"""The process group of one generation, behind the `Group` protocol, so that training code never asks how large its world is.

`WorldGroup` uses gloo, and NCCL for CUDA tensors; `SoloGroup` is a world of one rank. `all_gather_object` unpickles what other ranks
sent: all ranks of a job are one trust domain.
"""

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
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.futures import Future

from paceline.distributed import torch_private
from paceline.distributed.abort import ABORTED, GroupAborter, wait_for
from paceline.distributed.axis_groups import AxisGroup, create_axis_groups
from paceline.distributed.calls import Call, point_to_point_call
from paceline.distributed.errors import GenerationOverError, StoreRefusedError, StoreUnreachableError
from paceline.distributed.probes import HostProbePort
from paceline.distributed.store import CONNECT_TIMEOUT_SECONDS, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, RendezvousStore, StoreAddress
from paceline.distributed.timeouts import COLLECTIVE_SECONDS
from paceline.distributed.traffic import NOTHING, WORLD, Sent, Traffic, all_reduce_bytes, gather_bytes, transfer_bytes
from paceline.monitoring.backoff import Backoff

COLLECTIVE_TIMEOUT = timedelta(seconds=COLLECTIVE_SECONDS)


class Membership(StoreAddress, Protocol):
    """A rank's place in a generation: the store's address, its rank, its slot and its device."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def device(self) -> Literal["cpu", "cuda"]: ...


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
    traffic: Traffic  # what this rank sends; `along` below names the axis that it is counted for

    def sent(self) -> Sent:
        """Return the bytes that this rank has sent since the last call of `sent`."""
        ...

    def sum(self, values: Tensor, *, along: str = WORLD, overlaps: bool = False) -> Future[Tensor]:
        """Sum `values` over all ranks, in place. Collective. `overlaps`: the caller computes meanwhile, so its wait is not counted as
        waiting.
        """
        ...

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        """Start to sum `values` over all ranks, in place, and return a function that waits for the result and returns it. Collective."""
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


class SoloGroup:
    """The group of a world of one rank: every call returns at once, and there are neither store nor sockets."""

    rank = 0
    world_size = 1
    axis_groups: Mapping[str, AxisGroup] = MappingProxyType({})

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


class WorldGroup:
    """All ranks that meet in `store`, over gloo, and over NCCL for CUDA tensors."""

    def __init__(self, rank: int, world_size: int, device: torch.device, store: Store, aborter: GroupAborter, axes: Axes) -> None:
        self.rank, self.world_size = rank, world_size
        self._aborter, self._device, self.traffic = aborter, device, Traffic((*axes, WORLD))
        dist.init_process_group(
            backend="cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
        # Before `complete_rendezvous`: their sockets belong to the group and must be known to the aborter.
        self.axis_groups: Mapping[str, AxisGroup] = create_axis_groups(axes, self.rank, aborter, self.traffic)
        aborter.complete_rendezvous()

    def sent(self) -> Sent:
        """Return the bytes sent and the seconds of overlap, which are None on GPUs (NCCL runs behind the host) and in pipelines (ends of
        sends are not seen).
        """
        overlapped = self._aborter.calls.overlap.lap()
        return Sent(self.traffic.lap(), overlapped if self._device.type == "cpu" and "pipeline" not in self.axis_groups else None)

    def sum(self, values: Tensor, *, along: str = WORLD, overlaps: bool = False) -> Future[Tensor]:
        call = self._aborter.calls.begin("sum", values)
        if not overlaps:
            self._aborter.calls.awaited = call
        return self._sum(values, call, along)

    def _sum(self, values: Tensor, call: Call, along: str) -> Future[Tensor]:
        self.traffic.add(along, all_reduce_bytes(values, self.world_size))
        work: Any = dist.all_reduce(self._aborter.in_flight.alias(values), async_op=True)
        if values.device.type == "cpu":
            promise = self._aborter.abortable_future(work, call, values)
            self._aborter.calls.overlap.follow(promise)
            return promise
        self._aborter.calls.done(call)  # on a GPU the host does not wait here, but where a value is read
        future: Future[Tensor] = work.get_future().then(lambda sums: sums.value()[0])
        return future

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        call = self._aborter.calls.begin("sum", values)
        future = self._sum(values, call, WORLD)

        def finish() -> Tensor:
            with self._aborter.calls.awaiting(call):
                future.wait()
                self._require_whole(values)
            return values

        return finish

    def _require_whole(self, *values: Tensor) -> None:
        """Raise `GenerationOverError` if the group was aborted while NCCL computed `values`: an aborted kernel ends as if it had
        succeeded.
        """
        devices = {tensor.device for tensor in values if tensor.device.type == "cuda"}
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        if devices and self._aborter.aborted.is_set():
            raise GenerationOverError(ABORTED)

    def all_gather_object(self, value: Any) -> list[Any]:
        content = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        lengths = [int(length) for length in self._gather(torch.tensor([len(content)]))]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(content)] = content
        pieces = zip(self._gather(padded), lengths, strict=True)
        return [pickle.loads(piece[:length].numpy().tobytes()) for piece, length in pieces]

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the `tensor` of every rank; all are CPU tensors of one shape."""
        self.traffic.add(WORLD, gather_bytes(tensor, self.world_size))
        found = [torch.empty_like(tensor) for _ in range(self.world_size)]
        call = self._aborter.calls.begin("gather", tensor)
        alias = self._aborter.in_flight.alias
        with self._aborter.calls.awaiting(call):
            self._aborter.abortable_future(dist.all_gather([*map(alias, found)], alias(tensor), async_op=True), call, tensor).wait()
        return found

    def send(self, tensor: Tensor, target: int) -> None:
        with self._aborter.calls.awaiting(point_to_point_call(f"send to rank {target}")):
            self._transfer([dist.P2POp(dist.isend, tensor, target)], WORLD)

    def receive(self, tensor: Tensor, source: int) -> None:
        with self._aborter.calls.awaiting(point_to_point_call(f"receive from rank {source}")):
            self._transfer([dist.P2POp(dist.irecv, tensor, source)], WORLD)

    def transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> None:
        with self._aborter.calls.awaiting(self._aborter.calls.begin("exchange")):
            self._transfer(operations, along)

    def start_transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> PointToPoint:
        self.traffic.add(along, transfer_bytes(operations))
        return PointToPoint(dist.batch_isend_irecv(operations) if operations else (), operations)

    def end_transfers(self, transfers: Sequence[PointToPoint]) -> None:
        peers = ", ".join(map(str, sorted({operation.peer for transfer in transfers for operation in transfer.operations})))
        with self._aborter.calls.awaiting(point_to_point_call(f"transfer with rank {peers}")):
            self._end(transfers)

    def _transfer(self, operations: list[dist.P2POp], along: str) -> None:
        self._end([self.start_transfer(operations, along=along)])
        self._require_whole(*(operation.tensor for operation in operations))

    def _end(self, transfers: Sequence[PointToPoint]) -> None:
        works = [work for transfer in transfers for work in transfer.works]
        if all(operation.tensor.device.type == "cpu" for transfer in transfers for operation in transfer.operations):
            self._aborter.wait(works)
        else:
            wait_for(works)

    def wait_for_future(self, work: concurrent.futures.Future[Any]) -> None:
        self._aborter.wait_for_future(work)

    def process_group(self) -> dist.ProcessGroup | None:
        return dist.group.WORLD

    def barrier_and_leave(self) -> None:
        self.sum(torch.zeros(1)).wait()
        self._aborter.wait_for_threads()

    def close(self) -> None:
        """Destroy the group. Hazard: drop all references to wrappers, losses and autograd graphs first, or peers wait for the time-out."""
        dist.destroy_process_group()


class GenerationGroup(WorldGroup):
    """The group of one generation of a job. Its ranks meet in the job's rendezvous store and exchange the addresses of their probe ports."""

    def __init__(self, membership: Membership, aborter: GroupAborter, axes: Axes) -> None:
        self._store = meet(membership, aborter)
        device = torch.device("cuda", membership.slot) if membership.device == "cuda" else torch.device("cpu")
        store = PrefixStore(f"g{membership.generation}", self._store)
        super().__init__(membership.rank, membership.world_size, device, store, aborter, axes)
        self._host_probe_port = HostProbePort(self._store.local_host)
        endpoints = self.all_gather_object((self._host_probe_port.endpoint, aborter.process_probe_port.at(self._store.local_host)))
        others = {rank: each for rank, each in enumerate(endpoints) if rank != self.rank}
        aborter.host_probes = {rank: host for rank, (host, _) in others.items()}
        aborter.process_probes = {rank: process for rank, (_, process) in others.items()}

    def close(self) -> None:
        super().close()
        self._store.close()
        self._host_probe_port.close()


def meet(membership: Membership, aborter: GroupAborter) -> RendezvousStore:
    """Wait in the rendezvous store until every rank of the generation has arrived, and return the connected store.

    All ranks arrive here before torch's own rendezvous, because no socket frees a rank that waits there for one that died. A store that
    disappears comes back with its agent and has forgotten all arrivals, so this rank connects and arrives again.
    """
    while True:
        store = reach_store(membership, aborter)
        try:
            await_all(store, membership, aborter)
        except StoreUnreachableError:
            store.close()
            if aborter.aborted.is_set():
                raise
        else:
            return store


def reach_store(membership: Membership, aborter: GroupAborter) -> RendezvousStore:
    """Return a connection to the store, trying again when its agent dies during the handshake. Raises `StoreUnreachableError`."""
    deadline, backoff = time.monotonic() + CONNECT_TIMEOUT_SECONDS, Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    while True:
        try:
            return RendezvousStore(membership, cancelled=aborter.aborted)
        except StoreUnreachableError:
            if aborter.aborted.wait(backoff.next_seconds()) or time.monotonic() > deadline:
                raise


def await_all(store: RendezvousStore, membership: Membership, aborter: GroupAborter) -> None:
    """Record this rank's arrival in `store` and wait until all ranks of the generation have arrived. Raises `StoreRefusedError`."""
    if aborter.aborted.is_set():  # before the store's socket was there to be shut down
        raise StoreRefusedError(f"generation {membership.generation} of job {membership.job_id} is over: a newer one has begun")
    arrived = f"g{membership.generation}/arrived"
    if store.add(arrived, 1) >= membership.world_size:
        store.set(f"{arrived}/all", b"")
    store.wait([f"{arrived}/all"])


def join(membership: Membership, aborter: GroupAborter, axes: Axes = MappingProxyType({})) -> Group:
    """Meet the other ranks of the generation and return their group, with the axis groups `axes`. Once `aborter` has aborted, every wait
    fails.
    """
    try:
        return SoloGroup() if membership.world_size == 1 else GenerationGroup(membership, aborter, axes)
    finally:
        aborter.end_rendezvous()


class RetiredGroups:
    """Process groups that this rank has left, kept until `drop`: while their sockets are open, a peer can still read what was sent to it."""

    def __init__(self, *groups: object) -> None:
        self._groups = list(groups)

    def drop(self) -> None:
        """Destroy the groups in a thread of their own: destruction waits for gloo's threads, which may never end in a broken group."""
        if self._groups:
            threading.Thread(target=self._groups.clear, name="group-end", daemon=True).start()


def retire_group() -> RetiredGroups:
    """Destroy torch's current process groups, so that the next ones can be made, and return them with their sockets still open."""
    if not dist.is_initialized():
        return RetiredGroups()
    retired = RetiredGroups(*torch_private.living_groups())  # the world's group and the axis groups
    dist.destroy_process_group()
    return retired
