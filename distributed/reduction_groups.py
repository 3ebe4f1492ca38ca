"""The connections through which gradients are summed over replicas, apart from those of all other calls.

A reduction runs in a thread of its own, beside the calls of all other groups, whose order it must not disturb.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from paceline.distributed.abort import GroupAborter
from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.calls import Calls
from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.collectives.placement import Hierarchy, hierarchy, ring_order
from paceline.distributed.collectives.ring import Ring
from paceline.distributed.collectives.sockets import connect
from paceline.distributed.collectives.within import GroupWithin, RingWithin, WithinMachine
from paceline.distributed.probes import family_of
from paceline.distributed.timeouts import COLLECTIVE_SECONDS
from paceline.distributed.traffic import Traffic

AXIS = "replicate"
T = TypeVar("T")


@dataclass(frozen=True)
class ReductionRequest:
    """The sums that are asked for, and this rank's own place."""

    algorithms: frozenset[Algorithm]  # any of these may be used
    generation: int
    machine: str  # that this rank is on: two ranks are on one if these are equal
    host: str  # address of the machine in the gang's network
    by_backend: bool = False  # sum within machines by process groups, as NCCL needs it, and over no ring


@dataclass(frozen=True)
class ReductionGroups:
    """The groups of this rank's replicas."""

    replicas: AxisGroup  # all of them
    ring: Ring | None = None  # through all of them, machine by machine, where it was asked for, or a hierarchy that there is not
    local: WithinMachine | None = None  # those of this machine, in a hierarchy
    peers: AxisGroup | None = None  # those that have this rank's place on the other machines, in a hierarchy

    def close(self) -> None:
        for each in (self.ring, self.local):
            if each is not None:
                each.close()


class _Builder:
    """Builds the groups of all replicas. Every rank takes the same steps in the same order."""

    def __init__(self, rank: int, request: ReductionRequest, store: Store, aborter: GroupAborter, traffic: Traffic) -> None:
        self._rank, self._request, self._store, self._aborter, self._traffic = rank, request, store, aborter, traffic
        self._calls = Calls()

    def machines(self) -> dict[int, int]:
        """Return the machine of every rank, numbered in the order of their first ranks."""
        self._store.set(f"machine/{self._rank}", self._request.machine)
        found = [self._store.get(f"machine/{rank}") for rank in range(dist.get_world_size())]
        numbers = {machine: number for number, machine in enumerate(dict.fromkeys(found))}
        return {rank: numbers[machine] for rank, machine in enumerate(found)}

    def axis_group(self, ranks: Sequence[int]) -> AxisGroup | None:
        """Create a process group, and return it if this rank is in it."""
        group = dist.new_group(list(ranks))
        if self._rank not in ranks:
            return None
        assert isinstance(group, dist.ProcessGroup)
        return AxisGroup(AXIS, ranks, self._rank, group, self._aborter, self._traffic, self._calls)

    def ring(self, name: str, order: Sequence[int]) -> Ring | None:
        """Connect the ranks of a ring, and return it if this rank is in it. `name`: tells it from other rings that this rank is in."""
        if self._rank not in order:
            return None
        following = order[(order.index(self._rank) + 1) % len(order)]
        with socket.create_server((self._request.host, 0), family=family_of(self._request.host)) as listener:
            self._store.set(f"ring/{name}/{self._rank}", json.dumps(listener.getsockname()[:2]))
            host, port = json.loads(self._store.get(f"ring/{name}/{following}"))
            transport = connect(
                listener, (host, port), COLLECTIVE_SECONDS, lambda count: self._traffic.add(AXIS, count), self._aborter.aborted.is_set
            )
        return Ring(order, self._rank, self._request.generation, transport)

    def within(self, nodes: Sequence[Sequence[int]]) -> WithinMachine | None:
        """Connect the ranks of each machine, and return those of this one."""
        if self._request.by_backend:
            group = _first(self.axis_group(ranks) for ranks in nodes)
            return None if group is None else GroupWithin(group)
        ring = _first(self.ring("local", ranks) for ranks in nodes)
        return None if ring is None else RingWithin(ring)


def create_reduction_groups(
    axes: Mapping[str, Sequence[Sequence[int]]], rank: int, request: ReductionRequest, store: Store, aborter: GroupAborter, traffic: Traffic
) -> ReductionGroups | None:
    """Create the groups of the replicate axis, and return this rank's; None where there is no such axis. Collective."""
    if AXIS not in axes:
        return None
    builder = _Builder(rank, request, store, aborter, traffic)
    node_of = builder.machines() if request.algorithms != {"backend"} else {}
    found = None
    for ranks in axes[AXIS]:
        replicas = builder.axis_group(ranks)
        layout = hierarchy(ranks, node_of) if "hierarchical" in request.algorithms else None
        peers = _first(builder.axis_group(each) for each in layout.peers) if layout else None
        local = builder.within(layout.nodes) if layout else None
        ring = builder.ring("all", ring_order(ranks, node_of)) if _needs_ring(request, layout) else None
        if replicas is not None:
            found = ReductionGroups(replicas, ring, local, peers)
    return found


def _needs_ring(request: ReductionRequest, layout: Hierarchy | None) -> bool:
    """Whether sums go over a ring through all replicas: it was asked for, or a hierarchy that there is not."""
    instead = {"hierarchical"} if layout is None else set()
    return not request.by_backend and bool(request.algorithms & ({"ring"} | instead))


def _first(found: Iterable[T | None]) -> T | None:
    """Return the one that this rank is in, once all are made."""
    return next((each for each in list(found) if each is not None), None)
