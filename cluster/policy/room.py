"""The free slots of a cluster while a queue is worked through, with the indexes that make ten thousand nodes cheap.

Nodes that no gang of the pass tells apart (one device, the same taints, the same of the labels that are asked for) form a `Pool`. Within
it nodes are kept in buckets by how many slots are available on them, each bucket in the order of names, and how many nodes have so many
slots is counted. A gang looks at a `Selection`: the pools of one device that it may use. So "how many blocks of this size fit" and "the
fullest nodes that fit one" cost as much as there are different numbers of slots, not as many as there are nodes.

While a pass lasts, slots are only taken or set aside: no node ever gets more room again. Two things rest on this: an entry of a bucket
for a node that has moved on is stale for good and is dropped when it is met, and the node with the most room is looked for once, until
it loses some.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from paceline.cluster.policy.mounts import NodeMounts
from paceline.cluster.policy.requirements import ANY_NODE, Requirements


@dataclass(frozen=True)
class NodeView:
    id: str
    name: str
    device: str
    slots: int
    free: tuple[int, ...]  # indexes of the slots that no rank holds
    schedulable: bool  # ready: not cordoned, draining, unreachable, lost
    labels: frozenset[str] = frozenset()  # as `requirements.facets` gives them
    taints: frozenset[str] = frozenset()
    folder: str | None = None  # the disk of its default folder for checkpoints; None: others may see that folder too
    mounts: NodeMounts | None = None  # where other folders lie; None: not known

    def obstacle(self, requirements: Requirements) -> str | None:
        """Return what keeps gangs with these requirements off the node, even if it is ready and has slots."""
        return requirements.obstacle(self.device, self.labels, self.taints)


@dataclass(frozen=True)
class NodeShare:
    """The slots that a gang has of one node."""

    node_id: str
    slots: tuple[int, ...]


class NodeRoom:
    """The slots that are left on one node. `order` is its place among all schedulable nodes, by name."""

    __slots__ = ("aside", "available", "free", "node", "order", "pool", "unpromised")

    def __init__(self, node: NodeView, pool: Pool, order: int) -> None:
        self.node, self.pool, self.order = node, pool, order
        self.free = tuple(sorted(node.free))
        self.aside = 0  # slots that blocked jobs wait with
        self.available = len(self.free)
        self.unpromised = node.slots  # all of its slots, busy ones too, less those set aside

    def take(self, count: int) -> NodeShare:
        taken, left = self.free[:count], self.free[count:]
        self.pool.free[len(self.free)] -= 1
        self.pool.free[len(left)] += 1
        self.free = left
        self.pool.move(self, self.unpromised)
        return NodeShare(self.node.id, taken)

    def set_aside(self, count: int) -> None:
        self.aside += count
        self.pool.move(self, self.unpromised - count)


class Pool:
    """Nodes that no gang of the pass tells apart, in buckets."""

    def __init__(self, device: str, labels: frozenset[str], taints: frozenset[str]) -> None:
        self.device, self.labels, self.taints = device, labels, taints
        self.rooms: list[NodeRoom] = []
        #: How many nodes have so many slots, in all, free, available, unpromised.
        self.slots, self.free, self.available, self.unpromised = (Counter[int]() for _ in range(4))
        #: Orders of nodes, by slots available and unpromised.
        self.buckets: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._top_level, self._top = -1, list[NodeRoom]()

    def add(self, node: NodeView, order: int) -> NodeRoom:
        """Add a node, later by name than all that are there."""
        room = NodeRoom(node, self, order)
        self.rooms.append(room)
        self.slots[node.slots] += 1
        self.free[room.available] += 1
        self.available[room.available] += 1
        self.unpromised[room.unpromised] += 1
        self.buckets[room.available][room.unpromised].append(order)
        return room

    def move(self, room: NodeRoom, unpromised: int) -> None:
        """Put a node whose slots were taken or set aside where it belongs now."""
        available = max(0, len(room.free) - room.aside)
        self.available[room.available] -= 1
        self.available[available] += 1
        self.unpromised[room.unpromised] -= 1
        self.unpromised[unpromised] += 1
        room.available, room.unpromised = available, unpromised
        heappush(self.buckets[available][unpromised], room.order)

    @property
    def largest(self) -> NodeRoom:
        """The node with the most slots available; among equals the last one by name."""
        level = max([available for available, count in self.available.items() if count])
        if level != self._top_level:
            self._top_level, self._top = level, [room for room in self.rooms if room.available == level]
        while self._top[-1].available != level:
            self._top.pop()
        return self._top[-1]


@dataclass(frozen=True)
class SlotMeasure:
    """One way to count the slots of nodes: how many nodes of a pool have so many, and how many one node has."""

    of_pool: Callable[[Pool], Mapping[int, int]]
    of_node: Callable[[NodeRoom], int]


SLOTS = SlotMeasure(lambda pool: pool.slots, lambda room: room.node.slots)
FREE = SlotMeasure(lambda pool: pool.free, lambda room: len(room.free))
AVAILABLE = SlotMeasure(lambda pool: pool.available, lambda room: room.available)
UNPROMISED = SlotMeasure(lambda pool: pool.unpromised, lambda room: room.unpromised)


@dataclass(frozen=True)
class Selection:
    """The nodes of one device that a gang may use. Its blocks are of `size` slots each, and a block lies on one node."""

    pools: tuple[Pool, ...]
    rooms: Sequence[NodeRoom]  # of the whole cluster, by order
    without: frozenset[NodeRoom] = frozenset()  # a few nodes of these pools that are passed over

    @property
    def largest(self) -> NodeRoom:
        """The node with the most slots available; among equals the last one by name."""
        return max((pool.largest for pool in self.pools), key=lambda room: (room.available, room.order))

    def blocks(self, measure: SlotMeasure, size: int, *, spread: bool) -> int:
        """How many blocks fit into the slots that are counted; spread: on different nodes."""
        found = 0
        for pool in self.pools:
            counts = measure.of_pool(pool).items()
            found += sum([count if spread else count * (slots // size) for slots, count in counts if slots >= size])
        for room in self.without:
            in_room = measure.of_node(room) // size
            found -= min(in_room, 1) if spread else in_room
        return found

    def take(self, size: int, count: int, *, spread: bool) -> list[NodeShare]:
        """So many blocks, which have to be available: spread, on the fullest nodes that fit one; else on the fewest nodes."""
        return self._take_spread(size, count) if spread else self._take_together(size, count)

    def _take_spread(self, size: int, count: int) -> list[NodeShare]:
        found: list[NodeRoom] = []
        for level in self._levels(size):
            found += self._pop(level, count - len(found))
            if len(found) == count:
                break
        return [room.take(size) for room in found]

    def _take_together(self, size: int, count: int) -> list[NodeShare]:
        """Whole nodes with the most blocks first, then the fullest node that holds the rest: no choice has fewer nodes."""
        shares: list[NodeShare] = []
        while count:
            levels = self._levels(size)
            holds_rest = next((level for level in levels if level // size >= count), None)
            if holds_rest is not None:
                return [*shares, *(room.take(count * size) for room in self._pop(holds_rest, 1))]
            most = levels[-1] // size
            widest = next(level for level in levels if level // size == most)
            found = self._pop(widest, count // most)
            shares += [room.take(most * size) for room in found]
            count -= most * len(found)
        return shares

    def set_aside(self, size: int, count: int, *, spread: bool) -> None:
        """Set so many blocks aside on the nodes with the most room, busy slots of theirs included."""
        found: list[tuple[NodeRoom, int]] = []
        widest = max([slots for pool in self.pools for slots, nodes in pool.unpromised.items() if nodes])
        most = 1 if spread else max(1, widest // size)
        for level in reversed(self._levels(0)):
            # As many nodes as it takes at least: of each node that is popped slots have to be set aside.
            while count and (rooms := self._pop(level, -(-count // most), least_unpromised=size)):
                for room in rooms:
                    blocks = 1 if spread else min(count, room.unpromised // size)
                    found.append((room, blocks * size))
                    count -= blocks
        for room, slots in found:
            room.set_aside(slots)

    def _levels(self, least: int) -> list[int]:
        """The numbers of slots that are available on any node, `least` or more, in rising order."""
        levels = {level for pool in self.pools for level, count in pool.available.items() if count and level >= least}
        if self.without:
            passed_over = Counter(room.available for room in self.without)
            levels = {level for level in levels if sum(pool.available[level] for pool in self.pools) > passed_over[level]}
        return sorted(levels)

    def _pop(self, level: int, count: int, least_unpromised: int = 0) -> list[NodeRoom]:
        """Up to `count` nodes with so many slots available, the first by name. They leave their buckets: slots of each have to be taken or
        set aside, or it is found no more."""
        found, passed_over = list[NodeRoom](), list[NodeRoom]()
        heaps = [heap for pool in self.pools for unpromised, heap in pool.buckets[level].items() if heap and unpromised >= least_unpromised]
        while len(found) < count and heaps:
            heap = heaps[0] if len(heaps) == 1 else min(heaps)
            room = self.rooms[heappop(heap)]
            if room.available == level:
                (passed_over if room in self.without else found).append(room)
            if not heap:
                heaps = [each for each in heaps if each]
        for room in passed_over:
            room.pool.move(room, room.unpromised)
        return found


class Room:
    """The slots of all schedulable nodes as the queue is worked through. `asked`: what the gangs that will look at it require."""

    def __init__(self, nodes: Sequence[NodeView], asked: Iterable[Requirements] = ()) -> None:
        labels = frozenset(label for requirements in asked for label in requirements.labels)
        pools: dict[tuple[str, frozenset[str], frozenset[str]], Pool] = {}
        rooms: list[NodeRoom] = []
        for node in sorted((node for node in nodes if node.schedulable), key=lambda node: (node.name, node.id)):
            key = (node.device, labels & node.labels, node.taints)
            if (pool := pools.get(key)) is None:
                pool = pools[key] = Pool(*key)
            rooms.append(pool.add(node, len(rooms)))
        self._rooms = rooms
        #: GPUs first: the ranks of one gang must be able to talk to each other, and prefer to do so on them.
        self.pools = sorted(pools.values(), key=lambda pool: (pool.device != "cuda", pool.device))
        self._selections: dict[Requirements, tuple[Selection, ...]] = {}
        self.nodes = {room.node.id: room for room in rooms}

    def selections(self, requirements: Requirements = ANY_NODE, without: Collection[str] = ()) -> tuple[Selection, ...]:
        """The nodes that a gang may use, by device, GPUs first. A device without any such node is left out. `without`: a few nodes that are
        passed over."""
        if without:
            rooms = [self.nodes[node_id] for node_id in without if node_id in self.nodes]
            every = self.selections(requirements)
            return tuple(replace(each, without=frozenset(room for room in rooms if room.pool in each.pools)) for each in every)
        found = self._selections.get(requirements)
        if found is None:
            by_device: dict[str, list[Pool]] = {}
            for pool in self.pools:
                if requirements.obstacle(pool.device, pool.labels, pool.taints) is None:
                    by_device.setdefault(pool.device, []).append(pool)
            found = self._selections[requirements] = tuple(Selection(tuple(pools), self._rooms) for pools in by_device.values())
        return found

    def part(self, node_ids: Collection[str], requirements: Requirements) -> Room:
        """The available slots of a few nodes as a room of their own. What is taken there is to be taken from this room too."""
        rooms = [self.nodes[node_id] for node_id in node_ids if node_id in self.nodes]
        return Room([replace(each.node, free=each.free[: each.available]) for each in rooms], {requirements})

    def available(self, node: NodeView) -> int:
        return self.nodes[node.id].available

    def take(self, node: NodeView, count: int) -> NodeShare:
        return self.nodes[node.id].take(count)
