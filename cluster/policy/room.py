"""The free slots of a cluster while a queue is worked through, with the indexes that make ten thousand nodes cheap.

Nodes of one device form a `Kind`. Within it nodes are kept in buckets by how many slots are available on them, each bucket in the
order of names, and how many nodes have so many slots is counted. So "how many nodes fit this shape" and "the fullest nodes that fit
it" cost as much as there are different numbers of slots, not as many as there are nodes.

While a pass lasts, slots are only taken or set aside: no node ever gets more room again. Two things rest on this: an entry of a bucket
for a node that has moved on is stale for good and is dropped when it is met, and the node with the most room is looked for once, until
it loses some.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True)
class NodeView:
    id: str
    name: str
    device: str
    slots: int
    free: tuple[int, ...]  # indexes of the slots that no rank holds
    schedulable: bool  # ready: not cordoned, draining, unreachable, lost


@dataclass(frozen=True)
class NodeShare:
    node_id: str
    slots: tuple[int, ...]


class NodeRoom:
    """The slots that are left on one node. `order` is its place among the nodes of its kind, by name."""

    __slots__ = ("aside", "available", "free", "kind", "node", "order", "unpromised")

    def __init__(self, node: NodeView, kind: Kind, order: int) -> None:
        self.node, self.kind, self.order = node, kind, order
        self.free = tuple(sorted(node.free))
        self.aside = 0  # slots that blocked jobs wait with
        self.available = len(self.free)
        self.unpromised = node.slots  # all of its slots, busy ones too, less those set aside


class Kind:
    """The nodes of one device, in buckets."""

    def __init__(self, device: str, nodes: Sequence[NodeView]) -> None:
        self.device = device
        self.nodes = [NodeRoom(node, self, order) for order, node in enumerate(sorted(nodes, key=lambda node: (node.name, node.id)))]
        #: How many nodes have so many slots, in all, free, available, unpromised.
        self.slots = Counter(room.node.slots for room in self.nodes)
        self.free = Counter(len(room.free) for room in self.nodes)
        self.available = Counter(room.available for room in self.nodes)
        self.unpromised = Counter(room.unpromised for room in self.nodes)
        self._buckets: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for room in self.nodes:
            self._buckets[room.available][room.unpromised].append(room.order)
        self._top_level, self._top = -1, list[NodeRoom]()

    def take(self, room: NodeRoom, count: int) -> NodeShare:
        taken, left = room.free[:count], room.free[count:]
        self.free[len(room.free)] -= 1
        self.free[len(left)] += 1
        room.free = left
        self._move(room, room.unpromised)
        return NodeShare(room.node.id, taken)

    def set_aside(self, room: NodeRoom, count: int) -> None:
        room.aside += count
        self._move(room, room.unpromised - count)

    def fullest(self, slots: int, count: int) -> list[NodeRoom]:
        """The `count` nodes with the least room that have `slots` available: each has to be taken from, or it is found no more."""
        levels = sorted(available for available in self._buckets if available >= slots)
        return self._first(levels, count, least_unpromised=None)

    def nearest(self, slots: int, count: int) -> list[NodeRoom]:
        """The `count` nodes with the most room on which so many slots can be set aside: that has to be done with each of them."""
        levels = sorted(self._buckets, reverse=True)
        return self._first(levels, count, least_unpromised=slots)

    @property
    def largest(self) -> NodeRoom:
        """The node with the most slots available; among equals the last one by name."""
        level = max(available for available, count in self.available.items() if count)
        if level != self._top_level:
            self._top_level, self._top = level, [room for room in self.nodes if room.available == level]
        while self._top[-1].available != level:
            self._top.pop()
        return self._top[-1]

    def _first(self, levels: Sequence[int], count: int, least_unpromised: int | None) -> list[NodeRoom]:
        found: list[NodeRoom] = []
        for available in levels:
            heaps = [h for left, h in self._buckets[available].items() if least_unpromised is None or left >= least_unpromised]
            self._pop(available, heaps, count, found)
            if len(found) == count:
                break
        return found

    def _pop(self, available: int, heaps: list[list[int]], count: int, found: list[NodeRoom]) -> None:
        """Move the first nodes by name out of these buckets of one level, until `count` are found or none is left."""
        while len(found) < count:
            heaps = [heap for heap in heaps if heap]
            if not heaps:
                return
            room = self.nodes[heappop(heaps[0] if len(heaps) == 1 else min(heaps))]
            if room.available == available:
                found.append(room)

    def _move(self, room: NodeRoom, unpromised: int) -> None:
        available = max(0, len(room.free) - room.aside)
        self.available[room.available] -= 1
        self.available[available] += 1
        self.unpromised[room.unpromised] -= 1
        self.unpromised[unpromised] += 1
        room.available, room.unpromised = available, unpromised
        heappush(self._buckets[available][unpromised], room.order)


class Room:
    """The slots of all schedulable nodes as the queue is worked through."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        by_device: defaultdict[str, list[NodeView]] = defaultdict(list)
        for node in nodes:
            if node.schedulable:
                by_device[node.device].append(node)
        #: GPUs first: the ranks of one gang must be able to talk to each other, and prefer to do so on them.
        self.kinds = [Kind(device, by_device[device]) for device in sorted(by_device, key=lambda device: (device != "cuda", device))]
        self.nodes = {room.node.id: room for kind in self.kinds for room in kind.nodes}

    def available(self, node: NodeView) -> int:
        return self.nodes[node.id].available

    def take(self, node: NodeView, count: int) -> NodeShare:
        room = self.nodes[node.id]
        return room.kind.take(room, count)


def at_least(counted: Mapping[int, int], slots: int) -> int:
    """How many nodes have so many slots or more."""
    return sum(count for each, count in counted.items() if each >= slots)
