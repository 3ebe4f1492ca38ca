"""Checkpoints in an object store: staged on the node, uploaded behind the steps, committed by their manifest.

`<prefix>/<job>/step-N.gG/` holds the files of a checkpoint under the names they have in a folder. Only the manifest makes them one; it is
written last and deleted first, so that whatever dies at whatever request leaves a whole checkpoint or debris. A rank of a generation that is
over cannot commit what a newer one has cleared: rank 0 looks for every file before it writes the manifest, and who lists checkpoints looks again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paceline.monitoring.file_hashes import File
from paceline.objects.client import HASTY, ObjectClient, Patience
from paceline.objects.errors import ObjectAccessError, ObjectNotFoundError, ObjectStoreError
from paceline.objects.location import ObjectLocation
from paceline.training.errors import CheckpointCorruptError, CheckpointSaveError, InvalidInputError
from paceline.training.saving import manifest as manifests
from paceline.training.saving.manifest import MANIFEST, CommittedCheckpoint, Manifest
from paceline.training.saving.object_manifests import delete
from paceline.training.saving.storage import SIGN, VISIBLE, remove_staged

#: Below a node's staging folder: files on their way up, and on their way down.
SAVES, RESTORES = "saves", "restores"
PASS_ON = (
    "give the node's ranks their credentials: start its agent with --pass-env AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY (or the names that your "
    "store uses), or keep them with `paceline secret set NAME` and name them in environment.secrets"
)


@dataclass(frozen=True)
class ObjectTarget:
    """A save into an object store, from the scratch folder of this rank alone."""

    client: ObjectClient
    name: str
    scratch: Path
    is_remote = True

    @property
    def place(self) -> ObjectLocation:
        return self.client.location / self.name

    def make_scratch(self, *, leads: bool) -> None:
        remove_staged(self.scratch.parent)  # of this rank's earlier saves
        self.scratch.mkdir(parents=True)

    def join_scratch(self) -> None:
        """Make the folder; training waits for this, and not for `store`, which removes those of earlier saves."""
        try:
            self.scratch.mkdir()
        except OSError:  # what is in the way, or missing
            self.make_scratch(leads=False)

    def store(self, files: Mapping[str, File]) -> None:
        for name in files:
            self.client.upload(f"{self.name}/{name}", self.scratch / name)
            (self.scratch / name).unlink()
        for earlier in self.scratch.parent.iterdir():
            if earlier != self.scratch:
                remove_staged(earlier)

    def publish(self, manifest: Manifest) -> str:
        there = self.client.sizes(self.name)
        for name, file in manifest.files.items():
            if there.get(name) != file.bytes:
                raise CheckpointSaveError(f"{self.place / name}: {told(there.get(name))}, and it has to have {file.bytes} bytes")
        content = manifests.encoded(manifest)
        self.client.put(f"{self.name}/{MANIFEST}", content)
        remove_staged(self.scratch)
        return hashlib.sha256(content).hexdigest()

    def withdraw(self, *, leads: bool) -> None:
        remove_staged(self.scratch)
        if leads:
            with contextlib.suppress(ObjectStoreError):  # the next generation clears what is left
                delete(ObjectClient(self.client.location, self.client.options, HASTY), self.name)


@dataclass(frozen=True)
class ObjectStorage:
    """A prefix in an object store. `staging`: this job's folder on this node for what is on its way, of which each rank has a part."""

    place: ObjectLocation
    options: Mapping[str, str]
    staging: Path
    generation: int
    rank: int
    patience: Patience = field(default_factory=Patience)
    client: ObjectClient = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", ObjectClient(self.place, self.options, self.patience))

    def require_writable(self, rank: int) -> None:
        probe = f".writable.g{self.generation}.rank{rank}"
        hasty = ObjectClient(self.place, self.options, HASTY)
        try:
            hasty.put(probe, b"")
            hasty.delete([probe])
        except ObjectNotFoundError as error:  # its message says to create the bucket: credentials are not what is missing
            raise InvalidInputError(f"checkpoint.directory={self.place.parent} cannot be written from this node: {error}") from error
        except ObjectAccessError as error:
            raise InvalidInputError(
                f"checkpoint.directory={self.place.parent} cannot be written from this node: {error}. {PASS_ON}"
            ) from error

    def prepare(self, marker: str) -> None:
        stale = [name for name in self.client.sizes() if name.startswith(f"{VISIBLE}.")]
        self.client.delete(stale)
        self.client.put(marker, b"")
        self.client.put(SIGN, b"")

    def remove_debris(self, generation: int, *, leads: bool) -> None:
        for staged in self.staging.glob(f"{SAVES}/g*"):
            if staged.name.removeprefix("g").isdecimal() and int(staged.name.removeprefix("g")) < generation:
                remove_staged(staged)
        if not leads:
            return
        for name, files in self._folders().items():
            found = manifests.NAME.fullmatch(name)
            if found is not None and MANIFEST not in files and int(found["generation"]) < generation:
                self.client.delete([f"{name}/{file}" for file in files])

    def has(self, note: str) -> bool:
        return self.client.exists(note)

    def read_note(self, name: str) -> bytes | None:
        try:
            return self.client.get(name)
        except ObjectNotFoundError:
            return None

    def write_note(self, name: str, content: bytes) -> None:
        self.client.put(name, content)

    def remove_note(self, name: str) -> None:
        self.client.delete([name])

    def published(self, known: Collection[str]) -> list[CommittedCheckpoint]:
        return list(self._published(known))

    def target(self, name: str) -> ObjectTarget:
        scratch = self.staging / SAVES / f"g{self.generation}" / f"rank{self.rank}" / f"{name}{manifests.SCRATCH}"
        return ObjectTarget(self.client, name, scratch)

    def _published(self, known: Collection[str]) -> Iterator[CommittedCheckpoint]:
        for name, files in sorted(self._folders().items()):
            found, place = manifests.NAME.fullmatch(name), self.place / name
            if found is None or found["debris"] or MANIFEST not in files or str(place) in known:
                continue
            with contextlib.suppress(CheckpointCorruptError, ObjectNotFoundError):  # of no use, or deleted meanwhile
                content = self.client.get(f"{name}/{MANIFEST}")
                manifest = manifests.decoded(content, str(place), name)
                if all(files.get(each) == file.bytes for each, file in manifest.files.items()):
                    yield CommittedCheckpoint(place, manifest, hashlib.sha256(content).hexdigest())

    def _folders(self) -> dict[str, dict[str, int]]:
        """The sizes of the files below each folder of this place, by folder and name."""
        found: dict[str, dict[str, int]] = {}
        for key, size in self.client.sizes().items():
            folder, _, name = key.partition("/")
            if name:
                found.setdefault(folder, {})[name] = size
        return found


def told(size: int | None) -> str:
    return "the store does not have it" if size is None else f"the store has {size} bytes of it"
