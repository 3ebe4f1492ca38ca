"""What a node tells of its file systems, and where a path lies by that."""

from __future__ import annotations

from dataclasses import dataclass

#: The place of all paths on file systems that several machines may see.
SHARED = "shared"


@dataclass(frozen=True)
class NodeMounts:
    """The machine of a node, the mount points there of file systems that other machines may see, and of its own disks in these."""

    machine: str
    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def place_of(self, path: str) -> str:
        """Say where an absolute path lies: equal where two nodes may see one folder there. A link on the way may lead elsewhere."""
        nearest = max((mount for mount in (*self.shared, *self.own) if lies_below(path, mount)), key=len, default=None)
        return SHARED if nearest in self.shared else f"machine {self.machine}"


def lies_below(path: str, folder: str) -> bool:
    """Whether an absolute path is this folder or in it, by their names."""
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")
