"""Where a job's checkpoints live: a folder that all its ranks see, or a prefix in an object store that all of them reach.

In a folder the rename of a scratch directory is the commit. A store has no rename: there a rank writes its files on its node, uploads them, and
the manifest is the commit, uploaded last, by rank 0, once the store has told the size of every file that it names. What has no manifest is debris.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.monitoring.file_hashes import File
from paceline.monitoring.files import make_folders, write_durably
from paceline.objects.location import Place
from paceline.training.saving import manifest as manifests
from paceline.training.saving.manifest import CommittedCheckpoint, Manifest

#: Empty, and there from the first generation on: a rank that joins later can tell whether it sees what the others save. Nothing is sealed by
#: it; its name is on disks.
SIGN = ".vault"
VISIBLE = ".visible"


class SaveTarget(Protocol):
    """The destination of one save."""

    @property
    def place(self) -> Place:
        """Where the checkpoint is once it is committed."""
        ...

    @property
    def scratch(self) -> Path:
        """The folder on this node that the ranks write their files into."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether files leave the node, which may take long."""
        ...

    def make_scratch(self, *, leads: bool) -> None:
        """Make the scratch folder anew. Raises OSError."""
        ...

    def join_scratch(self) -> None:
        """Make the scratch folder, unless another rank has done so for this save: no rank waits for another. Raises OSError."""
        ...

    def store(self, files: Mapping[str, File]) -> None:
        """Bring files that this rank has written to where they stay. Raises OSError."""
        ...

    def publish(self, manifest: Manifest) -> str:
        """Commit, by rank 0, and return the SHA-256 of the manifest. Raises OSError."""
        ...

    def withdraw(self, *, leads: bool) -> None:
        """Turn a failed save back into debris and delete it, as far as that works."""
        ...


class CheckpointStorage(Protocol):
    """The place of a job's checkpoints, and the small notes beside them. Every method may raise OSError."""

    @property
    def place(self) -> Place: ...

    def require_writable(self, rank: int) -> None:
        """Check, before the first step, that this rank can save there. Raises InvalidInputError, which says what is missing."""
        ...

    def prepare(self, marker: str) -> None:
        """Make the place, by rank 0, with an empty note `marker` in it by which other ranks tell that they see the same place."""
        ...

    def remove_debris(self, generation: int, *, leads: bool) -> None:
        """Delete what saves of older generations left unfinished."""
        ...

    def has(self, note: str) -> bool: ...

    def read_note(self, name: str) -> bytes | None: ...

    def write_note(self, name: str, content: bytes) -> None: ...

    def remove_note(self, name: str) -> None: ...

    def published(self, known: Collection[str]) -> list[CommittedCheckpoint]:
        """The complete checkpoints whose places are not `known`."""
        ...

    def target(self, name: str) -> SaveTarget: ...


@dataclass(frozen=True)
class FolderTarget:
    """A save into a folder that all ranks see: they write into one scratch directory beside it, which rank 0 makes and renames."""

    place: Path
    is_remote = False

    @property
    def scratch(self) -> Path:
        return self.place.with_name(f"{self.place.name}{manifests.SCRATCH}")

    def make_scratch(self, *, leads: bool) -> None:
        if leads:
            manifests.make_scratch(self.scratch)

    def join_scratch(self) -> None:
        self.scratch.mkdir(exist_ok=True)

    def store(self, files: Mapping[str, File]) -> None:
        """Nothing is to be done: the ranks have written where the files stay."""

    def publish(self, manifest: Manifest) -> str:
        return manifests.publish(self.scratch, self.place, manifest)

    def withdraw(self, *, leads: bool) -> None:
        if leads:
            manifests.withdraw(self.scratch, self.place)


@dataclass(frozen=True)
class FolderStorage:
    """A folder that every rank of the job sees."""

    place: Path

    def require_writable(self, rank: int) -> None:
        """Nothing is asked: `prepare` writes, and each save says what it could not write."""

    def prepare(self, marker: str) -> None:
        """An empty file takes no space: a full disk must not stop a job."""
        make_folders(self.place)
        for stale in self.place.glob(f"{VISIBLE}.*"):  # of a rank that died right here
            stale.unlink(missing_ok=True)
        (self.place / marker).touch()
        (self.place / SIGN).touch()

    def remove_debris(self, generation: int, *, leads: bool) -> None:
        if leads:
            manifests.remove_debris(self.place, generation)

    def has(self, note: str) -> bool:
        return (self.place / note).exists()

    def read_note(self, name: str) -> bytes | None:
        try:
            return (self.place / name).read_bytes()
        except FileNotFoundError:
            return None

    def write_note(self, name: str, content: bytes) -> None:
        write_durably(self.place / name, content)

    def remove_note(self, name: str) -> None:
        (self.place / name).unlink(missing_ok=True)

    def published(self, known: Collection[str]) -> list[CommittedCheckpoint]:
        return list(manifests.published(self.place, known))

    def target(self, name: str) -> FolderTarget:
        return FolderTarget(self.place / name)


def remove_staged(folder: Path) -> None:
    """Delete what was staged on this node. It is a copy, or part of a save that failed: a disk that refuses keeps it, which does no harm."""
    shutil.rmtree(folder, ignore_errors=True)
