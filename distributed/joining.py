"""How a rank joins the group of its generation: by way of the job's rendezvous store, where all ranks meet."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Literal, Protocol

import torch
from torch.distributed.distributed_c10d import PrefixStore

from paceline.distributed.abort import GroupAborter
from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.env import device_index
from paceline.distributed.errors import StoreRefusedError, StoreTimeoutError, StoreUnreachableError
from paceline.distributed.probes import HostProbePort
from paceline.distributed.process_group import Axes, Group
from paceline.distributed.reduction_groups import ReductionRequest
from paceline.distributed.solo_group import SoloGroup
from paceline.distributed.store import CONNECT_TIMEOUT_SECONDS, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, RendezvousStore, StoreAddress
from paceline.distributed.world_group import WorldGroup
from paceline.monitoring.backoff import Backoff


class Membership(StoreAddress, Protocol):
    """A rank's place in a generation: the store's address, its rank, its slot and its device."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def machine(self) -> str: ...  # equal for the ranks of one machine, however many nodes it has
    @property
    def slot(self) -> int: ...
    @property
    def device(self) -> Literal["cpu", "cuda"]: ...


class GenerationGroup(WorldGroup):
    """The group of one generation of a job. Its ranks meet in the job's rendezvous store and exchange the addresses of their probe ports."""

    def __init__(self, membership: Membership, aborter: GroupAborter, axes: Axes, algorithms: frozenset[Algorithm] = frozenset()) -> None:
        self._store = meet(membership, aborter)
        device = torch.device("cuda", device_index(membership.slot)) if membership.device == "cuda" else torch.device("cpu")
        store = PrefixStore(f"g{membership.generation}", self._store)
        request = (
            ReductionRequest(
                algorithms, membership.generation, membership.machine, self._store.local_host, by_backend=device.type == "cuda"
            )
            if algorithms
            else None
        )
        super().__init__(membership.rank, membership.world_size, device, store, aborter, axes, request)
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
    """Record this rank's arrival in `store` and wait until all ranks of the generation have arrived, however long their nodes prepare
    packages: the aborter and the coordinator's deadlines end the wait. Raises `StoreRefusedError` and `StoreUnreachableError`."""
    if aborter.aborted.is_set():  # before the store's socket was there to be shut down
        raise StoreRefusedError(f"generation {membership.generation} of job {membership.job_id} is over: a newer one has begun")
    arrived = f"g{membership.generation}/arrived"
    if store.add(arrived, 1) >= membership.world_size:
        store.set(f"{arrived}/all", b"")
    while True:
        try:
            return store.wait([f"{arrived}/all"])
        except StoreTimeoutError:  # the store is there, and some rank is not yet
            continue


def join(
    membership: Membership, aborter: GroupAborter, axes: Axes = MappingProxyType({}), *, reduces: frozenset[Algorithm] = frozenset()
) -> Group:
    """Meet the other ranks of the generation and return their group, with the axis groups `axes`. Once `aborter` has aborted, every wait
    fails. `reduces`: gradients will be summed by a `Reduction`, in one of these ways.
    """
    try:
        return SoloGroup() if membership.world_size == 1 else GenerationGroup(membership, aborter, axes, reduces)
    finally:
        aborter.end_rendezvous()
