"""The placement algorithm in its plainest form, without any index: what `cluster.policy.placement.place` must answer, word for word.

It looks at every node for every job, so it is right by inspection and far too slow for a large cluster. The property tests compare
the two on small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from paceline.cluster.policy.placement import NodeShare, NodeView, Placement, PlacementReason, QueuedGang, Request


def place(queue: Iterable[Request], nodes: Sequence[NodeView], room: Room | None = None) -> list[Placement | QueuedGang]:
    """The verdict on every request, in the order in which they were considered. `room` (default: all that is free) is used up."""
    usable = [node for node in nodes if node.schedulable]
    room = room or Room(nodes)
    return [_place_one(request, nodes, usable, room) for request in sorted(queue, key=_turn)]


def _least(request: Request) -> Request:
    return replace(request, nodes=min(request.nodes, request.min_nodes or request.nodes))


def _turn(request: Request) -> tuple[int, datetime, str]:
    return (-request.priority, request.queued_at, request.job_id)


class Room:
    """The free slots as the queue is worked through; `aside` are those that a blocked job waits with."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        usable = [node for node in nodes if node.schedulable]
        self.free: dict[str, tuple[int, ...]] = {node.id: tuple(sorted(node.free)) for node in usable}
        self.aside: dict[str, int] = {node.id: 0 for node in usable}

    def available(self, node: NodeView) -> int:
        return max(0, len(self.free[node.id]) - self.aside[node.id])

    def take(self, node: NodeView, count: int) -> NodeShare:
        taken, self.free[node.id] = self.free[node.id][:count], self.free[node.id][count:]
        return NodeShare(node.id, taken)

    def set_aside(self, node: NodeView, count: int) -> None:
        self.aside[node.id] += count


def _place_one(request: Request, nodes: Sequence[NodeView], usable: Sequence[NodeView], room: Room) -> Placement | QueuedGang:
    fitting = [[node for node in kind if room.available(node) >= request.slots_per_node] for kind in _kinds(usable)]
    widest = max(fitting, key=lambda found: min(len(found), request.nodes), default=[])
    if nodes_taken := request.nodes_of(len(widest)):
        chosen = sorted(widest, key=lambda node: (room.available(node), node.name, node.id))[:nodes_taken]
        return Placement(request.job_id, tuple(room.take(node, request.slots_per_node) for node in chosen))
    pending = QueuedGang(request.job_id, _explain(_least(request), nodes, usable, room))
    _reserve(_least(request), usable, room)
    return pending


def _kinds(nodes: Sequence[NodeView]) -> list[list[NodeView]]:
    """Nodes by device, GPUs first: the ranks of one gang must be able to talk to each other."""
    devices = sorted({node.device for node in nodes}, key=lambda device: (device != "cuda", device))
    return [[node for node in nodes if node.device == device] for device in devices]


def _reserve(request: Request, usable: Sequence[NodeView], room: Room) -> None:
    """Set slots aside on the nodes nearest to fitting; a job that the cluster cannot hold at all blocks nobody."""
    for kind in _kinds(usable):
        wide = [node for node in kind if node.slots - room.aside[node.id] >= request.slots_per_node]
        if len(wide) >= request.nodes:
            nearest = sorted(wide, key=lambda node: (-room.available(node), node.name, node.id))[: request.nodes]
            for node in nearest:
                room.set_aside(node, request.slots_per_node)
            return


def _explain(request: Request, nodes: Sequence[NodeView], usable: Sequence[NodeView], room: Room) -> PlacementReason:
    if not nodes:
        return PlacementReason(
            "no_nodes", f"needs {_shape(request)}; no node has joined", _shape(request), None, "add a node: paceline worker"
        )
    wide = max((sum(node.slots >= request.slots_per_node for node in kind) for kind in _kinds(usable)), default=0)
    if wide < request.nodes:
        return _too_small(request, nodes, usable, wide)
    if _fits_without_reservations(request, usable, room.free):
        text = f"needs {_shape(request, 'free ')}; the free ones are kept for a job that was here first or has a higher priority"
        return PlacementReason("reserved", text, _shape(request), None, "wait, or raise the priority")
    free = {node.id: room.available(node) for node in usable}
    nearest = _largest_free(usable, free)
    text = f"needs {_shape(request, 'free ')}; {nearest}"
    return PlacementReason("slots_taken", text, _missing(request, usable, free), nearest, "wait for a job to end, or add a node")


def _too_small(request: Request, nodes: Sequence[NodeView], usable: Sequence[NodeView], wide: int) -> PlacementReason:
    excluded = [node for node in nodes if not node.schedulable and node.slots >= request.slots_per_node]
    largest = max(usable, key=lambda node: (node.slots, node.name), default=None)
    nearest = f"the largest has {_of(largest.slots, 'slot')} ({largest.name})" if largest else "no node is ready"
    if excluded and wide + len(excluded) >= request.nodes:
        names = ", ".join(sorted(node.name for node in excluded))
        text = f"needs {_shape(request)}; {_of(wide, 'such node')} ready; no new jobs go to {names}"
        return PlacementReason(
            "nodes_unavailable", text, _of(request.nodes - wide, "more node"), nearest, f"bring back or uncordon {names}"
        )
    text = f"needs {_shape(request)}; the cluster has {_of(wide, 'such node')}: {nearest}"
    way_out = "add nodes, or ask for fewer nodes or slots_per_node"
    return PlacementReason(
        "cluster_too_small", text, f"{_of(request.nodes - wide, 'more node')} with {_of(request.slots_per_node, 'slot')}", nearest, way_out
    )


def _fits_without_reservations(request: Request, usable: Sequence[NodeView], free: Mapping[str, tuple[int, ...]]) -> bool:
    return any(sum(len(free[node.id]) >= request.slots_per_node for node in kind) >= request.nodes for kind in _kinds(usable))


def _of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _shape(request: Request, free: str = "") -> str:
    each = " each" if request.nodes > 1 else ""
    return f"{_of(request.nodes, 'node')} with {_of(request.slots_per_node, f'{free}slot')}{each}"


def _missing(request: Request, usable: Sequence[NodeView], free: Mapping[str, int]) -> str:
    fitting = max((sum(free[node.id] >= request.slots_per_node for node in kind) for kind in _kinds(usable)), default=0)
    return f"{_of(request.nodes - fitting, 'more node')} with {_of(request.slots_per_node, 'free slot')}"


def _largest_free(usable: Sequence[NodeView], free: Mapping[str, int]) -> str:
    largest = max(usable, key=lambda node: (free[node.id], node.name))
    return f"the largest free is {free[largest.id]} (node {largest.name})"
