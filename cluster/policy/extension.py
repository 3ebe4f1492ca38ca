"""Additional slots for a running gang, from those that the queue has left (`placement.Room`), with its blocks kept whole.

First the gang's broken blocks are made whole on the nodes where they are, then come whole blocks, each on one node. A block that fits no
node comes as far as one node has room for it, and never from two nodes. Nodes that are in the gang already come first, those of a job
that is spread up to its `slots_per_node`; then the fullest that fits, so that wide nodes stay whole for gangs that need them. Nodes from which ranks did not make
it of late come after all others.
Spares belong to no block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paceline.cluster.policy.folders import folder_of
from paceline.cluster.policy.placement import NodeShare, NodeView, PlacementReason, Room
from paceline.cluster.policy.requirements import ANY_NODE, Requirements
from paceline.monitoring.words import plural


@dataclass(frozen=True)
class Extension:
    """A gang that wants more ranks. `held`: how many of its processes each node has, parked ones included."""

    job_id: str
    slots: int
    most_per_node: int | None  # None: as many as the node has slots
    device: str
    held: Mapping[str, int]
    requirements: Requirements = ANY_NODE
    block: int = 1  # slots that are on one node together
    spares: int = 0  # how many of `slots` are for ranks without a place, on any node
    failures: Mapping[str, int] = field(
        default_factory=dict
    )  # by node: how many ranks were to join from there of late, and did not make it

    one_folder: bool = False  # its ranks need to see one folder for checkpoints
    directory: str | None = None  # the path of that folder; None: the default one of its nodes

    def is_full(self, node: NodeView) -> bool:
        """Whether the gang takes no more slots of the node, even if some are free."""
        return self.most_per_node is not None and self.held.get(node.id, 0) >= self.most_per_node

    @property
    def blocks(self) -> int:
        """How many blocks the gang is to have."""
        return -(-(sum(self.held.values()) + self.slots - self.spares) // self.block)


def extend(wanted: Extension, nodes: Sequence[NodeView], room: Room) -> tuple[NodeShare, ...]:
    """As many slots as there are, `wanted.slots` at most, one share for each; they are taken out of `room`."""
    gang = _GrowingGang(wanted, _usable(wanted, nodes), room)
    while gang.missing > wanted.spares and gang.take_for_blocks():
        pass
    for _ in range(min(gang.missing, wanted.spares)):
        gang.take_one()
    return tuple(gang.shares)


class _GrowingGang:
    """A gang while it is given slots."""

    def __init__(self, wanted: Extension, nodes: Sequence[NodeView], room: Room) -> None:
        self.wanted, self.shares = wanted, list[NodeShare]()
        self._nodes, self._room, self._held = nodes, room, Counter(wanted.held)

    @property
    def missing(self) -> int:
        return self.wanted.slots - len(self.shares)

    def take_for_blocks(self) -> bool:
        """Take slots of one node for one block, the most welcome ones that there are. Returns whether there were any."""
        block, begun = self.wanted.block, sum(-(-count // self.wanted.block) for count in self._held.values())
        if begun > self.wanted.blocks:  # its spares have come in: it is in no blocks any more
            return self.take_one()
        most = self.missing - self.wanted.spares
        return (
            self._complete_block(most)
            or self._take(lambda node, free: block if block <= min(free, self.missing) else 0)
            or self._take(lambda node, free: min(self._lacks(node), free, most))
            or (begun < self.wanted.blocks and self._take_widest(min(block, most)))
        )

    def _complete_block(self, most: int) -> bool:
        """Take all that a begun block lacks, if that is at most so many slots."""

        def lacking(node: NodeView, free: int) -> int:
            lacks = self._lacks(node)
            return lacks if lacks <= min(free, most) else 0

        return self._take(lacking)

    def take_one(self) -> bool:
        return self._take(lambda node, free: 1)

    def _take_widest(self, size: int) -> bool:
        """Begin a block on a node that has room for all of it, or else for the most."""
        widest = min(size, max(map(self._free, self._nodes), default=0))
        return self._take(lambda node, free: widest if free >= widest else 0)

    def _take(self, count: Callable[[NodeView, int], int]) -> bool:
        """Take as many slots as `count` says of a node and its free slots, on the first node of which it takes any."""
        for node in sorted(self._nodes, key=self._order):
            free = self._free(node)
            taken = count(node, free) if free else 0
            if taken:
                self.shares += [self._room.take(node, 1) for _ in range(taken)]
                self._held[node.id] += taken
                return True
        return False

    def _order(self, node: NodeView) -> tuple[int, bool, int, str, str]:
        return (self.wanted.failures.get(node.id, 0), self._held[node.id] == 0, self._room.available(node), node.name, node.id)

    def _free(self, node: NodeView) -> int:
        most, free = self.wanted.most_per_node, self._room.available(node)
        return free if most is None else min(free, max(0, most - self._held[node.id]))

    def _lacks(self, node: NodeView) -> int:
        """How many slots make the gang's last block on the node whole."""
        return -self._held[node.id] % self.wanted.block


def explain(wanted: Extension, nodes: Sequence[NodeView], found: int) -> PlacementReason:
    """The reason why there are fewer slots than wanted."""
    missing = plural(wanted.slots - found, "more slot")
    usable = _usable(wanted, nodes)
    full = [node for node in usable if node.free and wanted.is_full(node)]
    names = ", ".join(sorted(node.name for node in full))
    if not any(node.free for node in usable):
        elsewhere = any(node.free for node in _usable(replace(wanted, one_folder=False), nodes))
        text = f"{missing} wanted; {'the free ones are on nodes with another folder for checkpoints' if elsewhere else 'none is free'}"
    elif full and len(full) == sum(bool(node.free) for node in usable):
        text = f"{missing} wanted; {names} has {wanted.most_per_node} of its ranks already (resources.spread)"
    elif len(extend(wanted, nodes, Room(nodes, {wanted.requirements}))) <= found:
        text = f"{missing} wanted; the free ones are on other nodes than the rest of their {wanted.block} (resources.slots_per_node)"
    else:
        text = f"{missing} wanted; the free ones are kept for a job that waits"
    return PlacementReason("no_room_to_grow", text, missing, None, "add a node, or wait for another job to end")


def _usable(wanted: Extension, nodes: Sequence[NodeView]) -> list[NodeView]:
    """The nodes that the gang can use. Its ranks must be able to reach each other: one kind of device."""
    ready = (node for node in nodes if node.schedulable and node.device == wanted.device)
    fitting = [node for node in ready if node.obstacle(wanted.requirements) is None]
    mine = {folder_of(node, wanted.directory) for node in nodes if wanted.one_folder and wanted.held.get(node.id)} - {None}
    if len(mine) != 1:  # not known; or what lies apart by its mounts is one folder after all, since the gang runs there
        return fitting
    return [node for node in fitting if folder_of(node, wanted.directory) in (None, *mine)]
