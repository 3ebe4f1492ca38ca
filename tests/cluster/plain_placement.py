"""The placement algorithm in its plainest form, without any index: what `cluster.policy.placement.place` must answer, word for word.

It looks at every node for every job, so it is right by inspection and far too slow for a large cluster. The property tests compare
the two on small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from paceline.cluster.policy.placement import NodeShare, NodeView, Placement, PlacementReason, QueuedGang, Request
from paceline.cluster.policy.reasons import MOST_NAMED, Shape, count_of


def place(queue: Iterable[Request], nodes: Sequence[NodeView], room: Room | None = None) -> list[Placement | QueuedGang]:
    """The verdict on every request, in the order in which they were considered. `room` (default: all that is free) is used up."""
    room = room or Room(nodes)
    return [_place_one(request, nodes, room) for request in sorted(queue, key=_turn)]


def _turn(request: Request) -> tuple[int, object, str]:
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


def blocks_in(slots: int, request: Request) -> int:
    return min(1, slots // request.slots_per_block) if request.spread else slots // request.slots_per_block


def _place_one(request: Request, nodes: Sequence[NodeView], room: Room) -> Placement | QueuedGang:
    usable = [node for node in nodes if node.schedulable and node.obstacle(request.requirements) is None]
    kept = [node for node in usable if node.id not in request.leaves_out]
    if not any(sum(blocks_in(node.slots, request) for node in kind) >= request.fewest_blocks for kind in _kinds(kept)):
        request, kept = replace(request, leaves_out=frozenset()), usable
    shares = _fit(request, [node for node in kept if node.id in request.prefers], room) or _fit(request, kept, room)
    if shares:
        return Placement(request.job_id, tuple(shares))
    pending = QueuedGang(request.job_id, _explain(request, nodes, usable, kept, room))
    _reserve(request, kept, room)
    return pending


def _fit(request: Request, nodes: Sequence[NodeView], room: Room) -> list[NodeShare]:
    """The slots of the job on these nodes; none where it does not fit."""

    def fitting(kind: Sequence[NodeView]) -> int:
        return min(request.blocks, sum(blocks_in(room.available(node), request) for node in kind))

    widest = max(_kinds(nodes), key=fitting, default=[])
    blocks = request.blocks_of(fitting(widest))
    if not blocks:
        return []
    if request.last_held:
        return _take_back(request, widest, blocks, room)
    for group in request.groups(blocks):
        slots = blocks * request.slots_per_block
        if slots % group == 0 and sum(room.available(node) // group for node in widest) >= slots // group:
            return _together(widest, group, slots // group, room)
    take = _spread if request.spread else _together
    return take(widest, request.slots_per_block, blocks, room)


def _take_back(request: Request, kind: Sequence[NodeView], blocks: int, room: Room) -> list[NodeShare]:
    """First as many slots as the job last had on each node, then any."""
    size, by_id, slots = request.slots_per_block, {node.id: node for node in kind}, dict[str, tuple[int, ...]]()
    for node_id, had in request.last_held:
        if node_id in by_id and (count := min(blocks, blocks_in(had, request), blocks_in(room.available(by_id[node_id]), request))):
            slots[node_id], blocks = room.take(by_id[node_id], count * size).slots, blocks - count
    others = [node for node in kind if node.id not in slots] if request.spread else kind
    for share in (_spread if request.spread else _together)(others, size, blocks, room):
        slots[share.node_id] = (*slots.get(share.node_id, ()), *share.slots)
    return [NodeShare(*each) for each in slots.items()]


def _spread(kind: Sequence[NodeView], size: int, blocks: int, room: Room) -> list[NodeShare]:
    fitting = [node for node in kind if room.available(node) >= size]
    return [room.take(node, size) for node in sorted(fitting, key=lambda node: (room.available(node), node.name, node.id))[:blocks]]


def _together(kind: Sequence[NodeView], size: int, blocks: int, room: Room) -> list[NodeShare]:
    """The node with the most blocks, again and again; but for the last blocks the fullest node that holds them."""
    shares: list[NodeShare] = []
    while blocks:
        count = min(blocks, max(room.available(node) // size for node in kind))
        enough = [node for node in kind if room.available(node) // size >= count]
        shares.append(room.take(min(enough, key=lambda node: (room.available(node), node.name, node.id)), count * size))
        blocks -= count
    return shares


def _kinds(nodes: Sequence[NodeView]) -> list[list[NodeView]]:
    """Nodes by device, GPUs first: the ranks of one gang must be able to talk to each other."""
    devices = sorted({node.device for node in nodes}, key=lambda device: (device != "cuda", device))
    return [[node for node in nodes if node.device == device] for device in devices]


def _reserve(request: Request, usable: Sequence[NodeView], room: Room) -> None:
    """Set slots aside on the nodes nearest to fitting; a job that the cluster cannot hold at all blocks nobody."""
    for kind in _kinds(usable):
        blocks = {node.id: blocks_in(node.slots - room.aside[node.id], request) for node in kind}
        missing = request.fewest_blocks
        if sum(blocks.values()) >= missing:
            for node in sorted(kind, key=lambda node: (-room.available(node), node.name, node.id)):
                count = min(missing, blocks[node.id])
                room.aside[node.id] += count * request.slots_per_block
                missing -= count
            return


def _explain(
    request: Request, nodes: Sequence[NodeView], usable: Sequence[NodeView], kept: Sequence[NodeView], room: Room
) -> PlacementReason:
    shape = Shape(request.fewest_blocks, request.slots_per_block, request.spread)
    if not nodes:
        return PlacementReason(
            "no_nodes", f"needs {shape.spoken()}; no node has joined", shape.spoken(), None, "add a node: paceline worker"
        )

    def most(slots: Callable[[NodeView], int]) -> int:
        return max((sum(blocks_in(slots(node), request) for node in kind) for kind in _kinds(kept)), default=0)

    if (wide := most(lambda node: node.slots)) < shape.blocks:
        return _too_small(request, shape, nodes, usable, wide)
    if most(lambda node: len(room.free[node.id])) >= shape.blocks:
        text = f"needs {shape.spoken('free ')}; the free ones are kept for a job that was here first or has a higher priority"
        return PlacementReason("reserved", text, shape.spoken(), None, "wait, or raise the priority")
    largest = max(usable, key=lambda node: (room.available(node), node.name))
    nearest = f"the largest available node is {largest.name} ({count_of(room.available(largest), 'free slot')})"
    missing = shape.missing(shape.blocks - most(room.available), "free ")
    ready = [node for node in nodes if node.schedulable and node not in usable]
    others = _hindered(request, nodes) if any(room.available(node) >= shape.size for node in ready) else ""
    passed_over = sorted(node.name for node in nodes if node.schedulable and node.id in request.leaves_out)
    left_out = f"; {_named(passed_over)} could not start it a short time ago" if passed_over else ""
    text = f"needs {shape.spoken('free ')}; {nearest}{others}{left_out}"
    return PlacementReason("slots_taken", text, missing, nearest, "wait for a job to end, or add a node")


def _too_small(request: Request, shape: Shape, nodes: Sequence[NodeView], usable: Sequence[NodeView], wide: int) -> PlacementReason:
    away = [node for node in nodes if not node.schedulable and node.slots >= shape.size and node.obstacle(request.requirements) is None]
    largest = max(usable, key=lambda node: (node.slots, node.name), default=None)
    hindered = [node for node in nodes if node.schedulable and node.obstacle(request.requirements) is not None]
    nearest = (
        f"the largest node has {count_of(largest.slots, 'slot')} ({largest.name})" if largest else None if hindered else "no node is ready"
    )
    needs, missing = f"needs {shape.spoken()}", shape.missing(shape.blocks - wide)
    if away and wide + sum(blocks_in(node.slots, request) for node in away) >= shape.blocks:
        names = ", ".join(sorted(node.name for node in away))
        text = f"{needs}; {shape.capacity(wide)} ready; no new jobs go to {names}"
        return PlacementReason("nodes_unavailable", text, missing.partition(" with ")[0], nearest, f"bring back or uncordon {names}")
    has, others = f"the cluster has {shape.capacity(wide)}", _hindered(request, nodes)
    other = (
        "ask for other resources.labels, tolerations or device, or change what nodes have (paceline worker --label, paceline nodes taint)"
    )
    if wide + sum(blocks_in(node.slots, request) for node in hindered) >= shape.blocks:
        return PlacementReason("no_matching_node", f"{needs}; {has} for it{others}", missing, nearest, other)
    together = replace(request, spread=False)
    if largest is None and hindered:
        way_out = other
    elif any(sum(blocks_in(node.slots, together) for node in kind) >= shape.blocks for kind in _kinds(usable)):
        way_out = "leave out resources.spread"
    else:
        way_out = "ask for fewer nodes or slots_per_node" if shape.size > 1 or shape.spread else "ask for fewer slots"
    text = f"{needs}; {has}{f': {nearest}' if nearest else ' for it'}{others}"
    return PlacementReason("cluster_too_small", text, missing, nearest, f"add nodes, or {way_out}")


def _hindered(request: Request, nodes: Sequence[NodeView]) -> str:
    why: dict[str, list[str]] = {}
    for node in nodes:
        if node.schedulable and (obstacle := node.obstacle(request.requirements)):
            why.setdefault(obstacle, []).append(node.name)
    told = [f"{_named(names)} ({obstacle})" for obstacle, names in sorted(why.items())]
    return f"; it cannot use {', '.join(told)}" if told else ""


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(sorted(names)[:MOST_NAMED])}{more}"
