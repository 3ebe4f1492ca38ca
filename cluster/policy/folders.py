"""Which nodes may share their default folder for checkpoints: a gang that saves there finds its checkpoints on such nodes alone.

A folder of a node has an identity (`NodeView.folder`) where it is certainly this machine's own disk, which several agents of it may use. A node
without one may share its folder with any other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from paceline.cluster.policy.requirements import Requirements
from paceline.cluster.policy.room import NodeRoom, Room


class FolderSets:
    """The largest sets of nodes that may share one folder, of the nodes of a room; none where all may."""

    def __init__(self, room: Room) -> None:
        own, anywhere = defaultdict[str, list[NodeRoom]](list), list[NodeRoom]()
        for each in room.nodes.values():
            (anywhere if each.node.folder is None else own[each.node.folder]).append(each)
        self.sets = [[*own[folder], *anywhere] for folder in sorted(own)] if len(own) > 1 else []
        self._every = frozenset(room.nodes)
        self._widest: dict[tuple[Requirements, int, bool], frozenset[str]] = {}

    def outside_widest(self, requirements: Requirements, size: int, *, spread: bool) -> frozenset[str]:
        """Return the ids of all nodes but those of the set that would hold the most blocks, if nothing else were on it."""
        key = (requirements, size, spread)
        if key not in self._widest:
            widest = max(self.sets, key=lambda each: most_blocks(each, requirements, size, spread=spread))
            self._widest[key] = self._every - {room.node.id for room in widest}
        return self._widest[key]


def most_blocks(rooms: Collection[NodeRoom], requirements: Requirements, size: int, *, spread: bool, available: bool = False) -> int:
    """Return how many blocks nodes of one device among these hold, in their available slots or in all that they have."""
    found = Counter[str]()
    for room in rooms:
        if (slots := room.available if available else room.node.slots) >= size and room.node.obstacle(requirements) is None:
            found[room.node.device] += 1 if spread else slots // size
    return max(found.values(), default=0)
