"""The room of a decision: free slots of the present nodes, of those under way, and of those that are about to be asked for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.cluster.autoscaling.facts import NodeFacts, PoolFacts, ScalingFacts
from paceline.cluster.policy.folders import folder_of
from paceline.cluster.policy.placement import Request


@dataclass
class NodeRoomLeft:
    """A node, present or to come, and the slots that no pending job has taken in this decision."""

    pool: PoolFacts
    free: int
    node: NodeFacts | None = None  # None: it has not joined yet
    name: str = ""  # of one that has not joined yet
    promised: int = 0  # slots, busy ones too, that are kept for jobs which the node cannot take now

    def is_open_to(self, request: Request, occupied: Collection[str]) -> bool:
        """Whether a block of the job may lie there: of a node that has joined, what it is counts, and not what its pool says."""
        if self.free < request.slots_per_block:
            return False
        return self.node is None or (self.allows(request) and self.node.id not in occupied)

    def folder_for(self, request: Request) -> str | None:
        """The identity of the folder where the job saves on the node; None: the node may share it with any other."""
        if self.node is not None:
            return folder_of(self.node, request.directory)
        return self.pool.folder_of_next(request.directory, self.name)

    def allows(self, request: Request) -> bool:
        """Whether the node suits the job, however full it is."""
        node = self.node
        if node is None:
            return True
        return node.id not in request.leaves_out and request.requirements.obstacle(node.device, node.labels, node.taints) is None

    @property
    def unpromised(self) -> int:
        return (self.pool.slots if self.node is None else self.node.slots) - self.promised

    def keep(self, slots: int) -> None:
        """Keep so many slots for a job that waits: those that are free now, and the next ones that will be."""
        self.promised += slots
        self.free -= min(self.free, slots)


@dataclass
class Capacity:
    """Works through pending jobs one by one. A job takes room from present and coming nodes first, and then asks for new ones."""

    pools: Mapping[str, PoolFacts]
    count: Counter[str]  # nodes of each pool: present, under way, to be launched
    rooms: list[NodeRoomLeft]
    ending: Mapping[str, int] = field(default_factory=dict)  # nodes of each pool that have left and still take a place
    new: Counter[str] = field(default_factory=Counter)
    needed: set[str] = field(default_factory=set)  # ids of nodes that a pending job will use
    #: By id of a node: the running jobs that can grow onto it.
    offered: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, facts: ScalingFacts) -> Capacity:
        """The room before any job is looked at."""
        pools = {pool.name: pool for pool in facts.pools}
        mine = [(pools[node.pool], node) for node in facts.nodes if node.pool in pools]
        rooms = [NodeRoomLeft(pool, node.free, node) for pool, node in mine if node.is_usable]
        count = Counter(dict.fromkeys(pools, 0))
        count.update(pool.name for pool, _ in mine)
        capacity = cls(pools, count, rooms, facts.ending)
        for name, under_way in facts.launching.items():
            if name in pools:
                capacity._add(pools[name], under_way)
        return capacity

    def places(self, pool: PoolFacts) -> int:
        """How many more nodes this pool may have."""
        return max(0, pool.max_nodes - self.count[pool.name] - self.ending.get(pool.name, 0))

    def take(self, request: Request, blocks: int, pool: PoolFacts, *, coming: bool, occupied: Collection[str] = ()) -> set[str] | None:
        """Place `blocks` of the job on present nodes of this pool that are not `occupied` by it, and with `coming` on those under way too. Returns
        the ids of the present ones; None: they do not all fit, and nothing is taken."""
        taken = self._fitting(request, blocks, pool, coming=coming, occupied=occupied)
        if taken is None:
            return None
        for room, count in taken:
            room.free -= count * request.slots_per_block
        return {room.node.id for room, _ in taken if room.node is not None}

    def lacking(self, request: Request, blocks: int, pool: PoolFacts, occupied: Collection[str] = ()) -> int | None:
        """How many new nodes of this pool would make `blocks` of the job fit; None: no number of them, since each has its own folder."""
        per_node = pool.blocks_per_node(request)
        if _needs_one_folder(request) and pool.why_apart(request):
            return 1 if blocks <= per_node else None
        sets = _together(request, self._rooms_of(request, pool, occupied))
        here = max(sum(self._blocks_in(request, room.free) for room in rooms) for rooms in sets)
        return -(-max(0, blocks - here) // per_node)

    def reserve(self, request: Request, pools: Sequence[PoolFacts]) -> None:
        """Keep room for a job that will fit on present nodes of one of the pools once other jobs have ended, as placement does: nothing that comes
        after it gets these slots."""
        present = ([each for each in self.rooms if each.pool is pool and each.node is not None and each.allows(request)] for pool in pools)
        for rooms in (together for mine in present for together in _together(request, mine)):
            held = {id(each): self._blocks_in(request, each.unpromised) for each in rooms}
            left = request.fewest_blocks
            if sum(held.values()) < left:
                continue
            for room in sorted(rooms, key=lambda each: -each.free):
                count = min(left, held[id(room)])
                room.keep(count * request.slots_per_block)
                if count and room.node is not None:
                    self.needed.add(room.node.id)
                left -= count
            return

    def launch(self, pool: PoolFacts, count: int) -> None:
        """Add new nodes of this pool."""
        self.new[pool.name] += count
        self._add(pool, count)

    def _add(self, pool: PoolFacts, count: int) -> None:
        self.count[pool.name] += count
        for _ in range(count):
            self.rooms.append(NodeRoomLeft(pool, pool.slots, name=f"coming node {len(self.rooms)}"))

    def _rooms_of(self, request: Request, pool: PoolFacts, occupied: Collection[str]) -> list[NodeRoomLeft]:
        return [each for each in self.rooms if each.pool is pool and each.is_open_to(request, occupied)]

    def _fitting(
        self, request: Request, blocks: int, pool: PoolFacts, *, coming: bool, occupied: Collection[str]
    ) -> list[tuple[NodeRoomLeft, int]] | None:
        """The nodes that take the blocks, as few as there need be of those that may share a folder."""
        rooms = [each for each in self._rooms_of(request, pool, occupied) if coming or each.node is not None]
        found = [taken for together in _together(request, rooms) if (taken := self._fullest(request, blocks, together)) is not None]
        return min(found, key=len, default=None)

    def _fullest(self, request: Request, blocks: int, rooms: Sequence[NodeRoomLeft]) -> list[tuple[NodeRoomLeft, int]] | None:
        """The nodes that take the blocks, the fullest first, so that whole nodes stay free."""
        left, taken = blocks, list[tuple[NodeRoomLeft, int]]()
        for room in sorted(rooms, key=lambda each: (each.node is None, each.free)):
            count = min(left, self._blocks_in(request, room.free))
            if count:
                taken.append((room, count))
                left -= count
        return None if left else taken

    @staticmethod
    def _blocks_in(request: Request, free: int) -> int:
        blocks = free // request.slots_per_block
        return min(1, blocks) if request.spread else blocks


def _needs_one_folder(request: Request) -> bool:
    return request.one_folder and request.blocks > 1


def _together(request: Request, rooms: Sequence[NodeRoomLeft]) -> list[Sequence[NodeRoomLeft]]:
    """The largest sets of these nodes on which the job may lie: all of them or, where they have to see one folder, those that may share it."""
    if not _needs_one_folder(request):
        return [rooms]
    folders = [(each.folder_for(request), each) for each in rooms]
    known = sorted({folder for folder, _ in folders if folder is not None})
    return [[each for folder, each in folders if folder in (None, one)] for one in known] or [rooms]
