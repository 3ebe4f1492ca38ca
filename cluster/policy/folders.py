"""Which nodes may share the folder in which a gang saves its checkpoints: it finds them on such nodes alone.

The default folder of a node has an identity (`NodeView.folder`) where it is certainly this machine's own disk, which several agents of it may use. Of a
folder that a job names (`Request.directory`) the mounts of a node tell whether it lies on a file system that other machines may see, or on the machine's
own disks. A node of which that is not known may share its folder with any other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Protocol

from paceline.cluster.policy.mounts import NodeMounts, lies_below
from paceline.cluster.policy.requirements import Requirements
from paceline.cluster.policy.room import NodeRoom, Room


class HasFolders(Protocol):
    """A node, as far as its folders go."""

    @property
    def folder(self) -> str | None: ...
    @property
    def mounts(self) -> NodeMounts | None: ...


def folder_of(node: HasFolders, directory: str | None) -> str | None:
    """The identity of the folder where a gang saves on this node; None: the node may share it with any other. `directory`: the path that its job names;
    None: the default folder."""
    if directory is None:
        return node.folder
    return node.mounts.place_of(directory) if node.mounts is not None else None


class FolderSets:
    """The largest sets of nodes that may share one folder, of the nodes of a room; none where all may. `directory`: as of `folder_of`."""

    def __init__(self, room: Room, directory: str | None = None) -> None:
        own, anywhere = defaultdict[str, list[NodeRoom]](list), list[NodeRoom]()
        for each in room.nodes.values():
            folder = folder_of(each.node, directory)
            (anywhere if folder is None else own[folder]).append(each)
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


class FoldersOfRoom:
    """The sets of the nodes of a room that may share a folder, for each folder that gangs save in."""

    def __init__(self, room: Room) -> None:
        self._room = room
        told = (each.node.mounts for each in room.nodes.values())
        self._mounts = frozenset(mount for mounts in told if mounts is not None for mount in (*mounts.shared, *mounts.own))
        #: By the mount points above a folder: all folders below the same ones have the same sets. None: the default folder.
        self._sets: dict[frozenset[str] | None, FolderSets] = {}

    def sets_for(self, directory: str | None) -> FolderSets:
        """The sets for gangs that save there. `directory`: as of `folder_of`."""
        above = None if directory is None else frozenset(mount for mount in self._mounts if lies_below(directory, mount))
        if above not in self._sets:
            self._sets[above] = FolderSets(self._room, directory)
        return self._sets[above]


def most_blocks(rooms: Collection[NodeRoom], requirements: Requirements, size: int, *, spread: bool, available: bool = False) -> int:
    """Return how many blocks nodes of one device among these hold, in their available slots or in all that they have."""
    found = Counter[str]()
    for room in rooms:
        if (slots := room.available if available else room.node.slots) >= size and room.node.obstacle(requirements) is None:
            found[room.node.device] += 1 if spread else slots // size
    return max(found.values(), default=0)
