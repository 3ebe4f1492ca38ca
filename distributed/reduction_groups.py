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
    node: int  # number of the machine
    host: str  # address of the machine in the gang's network


@dataclass(frozen=True)
class ReductionGroups:
    """The groups of this rank's replicas."""

    replicas: AxisGroup  # all of them
    ring: Ring | None = None  # through all of them, machine by machine, where it was asked for, or a hierarchy that there is not
    local: Ring | None = None  # through those of this machine, in a hierarchy
    peers: AxisGroup | None = None  # those that have this rank's place on the other machines, in a hierarchy

    def close(self) -> None:
        for ring in (self.ring, self.local):
            if ring is not None:
                ring.close()


class _Builder:
    """Builds the groups of all replicas. Every rank takes the same steps in the same order."""

    def __init__(self, rank: int, request: ReductionRequest, store: Store, aborter: GroupAborter, traffic: Traffic) -> None:
        self._rank, self._request, self._store, self._aborter, self._traffic = rank, request, store, aborter, traffic
        self._calls = Calls()

    def nodes(self) -> dict[int, int]:
        """Return the machine of every rank."""
        self._store.set(f"node/{self._rank}", str(self._request.node))
        return {rank: int(self._store.get(f"node/{rank}")) for rank in range(dist.get_world_size())}

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


def create_reduction_groups(
    axes: Mapping[str, Sequence[Sequence[int]]], rank: int, request: ReductionRequest, store: Store, aborter: GroupAborter, traffic: Traffic
) -> ReductionGroups | None:
    """Create the groups of the replicate axis, and return this rank's; None where there is no such axis. Collective."""
    if AXIS not in axes:
        return None
    builder = _Builder(rank, request, store, aborter, traffic)
    node_of = builder.nodes() if request.algorithms != {"backend"} else {}
    found = None
    for ranks in axes[AXIS]:
        replicas = builder.axis_group(ranks)
        layout = hierarchy(ranks, node_of) if "hierarchical" in request.algorithms else None
        peers = _first(builder.axis_group(each) for each in layout.peers) if layout else None
        if replicas is not None:
            found = ReductionGroups(replicas, *_rings(builder, ranks, node_of, request, layout), peers)
    return found


def _rings(
    builder: _Builder, ranks: Sequence[int], node_of: Mapping[int, int], request: ReductionRequest, layout: Hierarchy | None
) -> tuple[Ring | None, Ring | None]:
    """Return the ring through all replicas and the one through those of this machine, as far as they are needed."""
    instead = {"hierarchical"} if layout is None else set()
    through_all = builder.ring("all", ring_order(ranks, node_of)) if request.algorithms & ({"ring"} | instead) else None
    return through_all, _first(builder.ring("local", each) for each in layout.nodes) if layout else None


def _first(found: Iterable[T | None]) -> T | None:
    """Return the one that this rank is in, once all are made."""
    return next((each for each in list(found) if each is not None), None)
