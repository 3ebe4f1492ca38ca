"""Additional slots for a running gang: slot by slot, from those that the queue has left (`placement.Room`).

Nodes that are in the gang already are refilled first, up to the job's `slots_per_node`; then come others, the fullest that
still has a slot first, so that wide nodes stay whole for gangs that need them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster.policy.placement import NodeShare, NodeView, PlacementReason, Room


@dataclass(frozen=True)
class Extension:
    """A gang that wants more ranks. `held`: how many of its processes each node has, parked ones included."""

    job_id: str
    slots: int
    slots_per_node: int
    device: str
    held: Mapping[str, int]


def extend(wanted: Extension, nodes: Sequence[NodeView], room: Room) -> tuple[NodeShare, ...]:
    """As many slots as there are, `wanted.slots` at most, one share for each; they are taken out of `room`."""
    held, shares = dict(wanted.held), list[NodeShare]()
    while len(shares) < wanted.slots:
        open_nodes = [node for node in _usable(wanted, nodes) if room.available(node) > 0 and held.get(node.id, 0) < wanted.slots_per_node]
        if not open_nodes:
            break
        node = min(open_nodes, key=lambda node: (held.get(node.id, 0) == 0, room.available(node), node.name, node.id))
        shares.append(room.take(node, 1))
        held[node.id] = held.get(node.id, 0) + 1
    return tuple(shares)


def explain(wanted: Extension, nodes: Sequence[NodeView], found: int) -> PlacementReason:
    """The reason why there are fewer slots than wanted."""
    missing = f"{wanted.slots - found} more slot{'' if wanted.slots - found == 1 else 's'}"
    usable = _usable(wanted, nodes)
    full = [node for node in usable if node.free and wanted.held.get(node.id, 0) >= wanted.slots_per_node]
    names = ", ".join(sorted(node.name for node in full))
    if not any(node.free for node in usable):
        text = f"{missing} wanted; none is free"
    elif full and len(full) == sum(bool(node.free) for node in usable):
        text = f"{missing} wanted; {names} has {wanted.slots_per_node} of its ranks already (resources.slots_per_node)"
    else:
        text = f"{missing} wanted; the free ones are kept for a job that waits"
    return PlacementReason("no_room_to_grow", text, missing, None, "add a node, or wait for another job to end")


def _usable(wanted: Extension, nodes: Sequence[NodeView]) -> list[NodeView]:
    """The nodes that the gang can use. Its ranks must be able to reach each other: one kind of device."""
    return [node for node in nodes if node.schedulable and node.device == wanted.device]
