"""What makes a directory a checkpoint: a manifest with the hash of every file and of itself, written last. No torch in here."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from paceline.monitoring.file_hashes import File, describe, has_own_hash, with_own_hash
from paceline.monitoring.files import UnfitFileError, read_file, sync_folder, write_durably
from paceline.objects.location import Place
from paceline.training.errors import CheckpointCorruptError, CheckpointUnreachableError
from paceline.training.optim.loss_guard import LossGuard
from paceline.training.optim.loss_scale import LossScale

MANIFEST = "manifest.json"
SCRATCH = ".tmp"
GONE = f".gone{SCRATCH}"
FORMAT = 2
#: A manifest has some 130 bytes for each file of its checkpoint.
MAX_MANIFEST_BYTES = 16 << 20
#: The name of a file of a checkpoint: directly in it, not in a folder of it.
FILE = re.compile(r"(?!\.\.?$)[\w.-]+")
NAME = re.compile(r"step-(?P<step>\d+)\.g(?P<generation>\d+)(?P<debris>(\.gone)?\.tmp)?")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    job_id: str
    step: int
    generation: int
    world_size: int
    seed: int  # with the step and the size of the data, all there is to the state of random numbers and data
    data: str | None = None  # size of the training data (`training.data.sizes`); None: of an own loop, or a version that did not tell
    spec_sha256: str
    created: float
    best: float | None  # of the policy's metric so far
    loss_scale: LossScale | None = None  # of fp16
    loss_guard: LossGuard = LossGuard()
    gave_up_lossy: bool = False  # `communication: auto`, for its loss: what leaves a part of the gradients out
    finite: bool | None = None  # whether all trained parameters are, of an own loop; None: it was not looked at
    metrics: dict[str, float | str]  # numbers that JSON lacks by name, as in MetricRecord
    parameters_sha256: str | None = None  # `training.saving.fingerprint`: the same whatever world saved them
    files: dict[str, File]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


@dataclass(frozen=True)
class CommittedCheckpoint:
    """A checkpoint that is there."""

    directory: Place
    manifest: Manifest
    manifest_sha256: str

    @property
    def announcement(self) -> dict[str, Any]:
        """Data of the event that announces this checkpoint to the coordinator."""
        return {
            "directory": str(self.directory),
            "step": self.manifest.step,
            "generation": self.manifest.generation,
            "bytes": self.manifest.bytes,
            "manifest_sha256": self.manifest_sha256,
            "parameters_sha256": self.manifest.parameters_sha256,
            "metrics": self.manifest.metrics,
        }


class _FormatVersion(msgspec.Struct, frozen=True):
    format: int


def directory_name(step: int, generation: int) -> str:
    return f"step-{step}.g{generation}"


def write(folder: Path, manifest: Manifest) -> str:
    """Durably; returns the SHA-256 of the file as a whole."""
    content = encoded(manifest)
    write_durably(folder / MANIFEST, content)
    return hashlib.sha256(content).hexdigest()


def encoded(manifest: Manifest) -> bytes:
    """Return the content of a manifest's file, with its own hash in it."""
    return with_own_hash(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def read(folder: Path) -> Manifest:
    """Read a checkpoint's manifest. Raises CheckpointCorruptError if any bit of it has changed, or it was made for another folder."""
    return decoded(read_content(folder), folder, folder.name)


def read_content(folder: Path, dir_fd: int | None = None) -> bytes:
    """Read the bytes of a checkpoint's manifest. `dir_fd` is its folder, where that is open. Raises CheckpointCorruptError, also for a link,
    a pipe and more than MAX_MANIFEST_BYTES, or CheckpointUnreachableError."""
    try:
        return read_file(folder / MANIFEST, MAX_MANIFEST_BYTES, dir_fd=dir_fd)
    except OSError as error:
        raise _not_read(folder, f"{folder}: no readable {MANIFEST} ({error.strerror or error})", error) from error


def decoded(content: bytes, folder: object, folder_name: str) -> Manifest:
    """Return the manifest that `content` is. `folder` is the checkpoint's place, for errors, and `folder_name` the last part of that.
    Raises CheckpointCorruptError as `read` does."""
    try:
        made = msgspec.json.decode(content, type=_FormatVersion).format
        if made == FORMAT and not has_own_hash(content):
            raise CheckpointCorruptError(f"{folder}: {MANIFEST} is damaged (it does not match its own SHA-256)")
        if made != FORMAT:
            raise CheckpointCorruptError(f"{folder}: format {made}; this version reads {FORMAT}")
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointCorruptError(f"{folder}: {MANIFEST} is damaged ({error})") from error
    for name in manifest.files:
        require_plain(folder, name)
    own_name = directory_name(manifest.step, manifest.generation)
    if NAME.fullmatch(folder_name) and folder_name != own_name:
        raise CheckpointCorruptError(f"{folder}: holds {own_name}, which was put in its place")
    return manifest


def _not_read(folder: Path, what: str, error: OSError) -> CheckpointCorruptError:
    """A file that is missing in a folder that is there is damage, and so is something other than a plain file."""
    is_damage = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError) and folder.is_dir()
    is_unfit = isinstance(error, UnfitFileError) and not isinstance(error.__cause__, PermissionError)
    return CheckpointCorruptError(what) if is_damage or is_unfit else CheckpointUnreachableError(what)


def require_plain(folder: object, name: str) -> None:
    """Hashes show that a checkpoint is whole, not where it comes from: it may not send its reader to other folders."""
    if not FILE.fullmatch(name):
        raise CheckpointCorruptError(f"{folder}: {MANIFEST} lists {name!r}, which is not the name of a file in it")


def require_inside(folder: Path, name: str) -> None:
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise CheckpointCorruptError(f"{folder / name}: a link that leads out of the checkpoint; copy the file to its place")


def verify(folder: Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Hash the files `names` and compare."""
    for name in names:
        try:
            require_inside(folder, name)
            found = describe(folder / name)
        except OSError as error:
            raise _not_read(folder, f"{folder / name}: {error.strerror or error}", error) from error
        if found != manifest.files[name]:
            raise CheckpointCorruptError(f"{folder / name}: {found.bytes} bytes that do not match the manifest's SHA-256")


def published(directory: Path, known: Collection[str]) -> Iterator[CommittedCheckpoint]:
    """Yield the checkpoints in `directory` that are not `known` and whose manifests can be read."""
    for folder in sorted(directory.glob("step-*")):
        name = NAME.fullmatch(folder.name)
        if name is not None and not name["debris"] and str(folder) not in known:
            with contextlib.suppress(
                CheckpointCorruptError
            ):  # deleted meanwhile, or of no use, and reported as damaged when it is to be restored
                content = read_content(folder)  # read once: a moment later it may be gone
                yield CommittedCheckpoint(folder, decoded(content, folder, folder.name), hashlib.sha256(content).hexdigest())


def make_scratch(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()


def publish(scratch: Path, final: Path, manifest: Manifest) -> str:
    """The rename is the moment the directory becomes a checkpoint. Returns the SHA-256 of the manifest."""
    digest = write(scratch, manifest)
    scratch.rename(final)
    sync_folder(final.parent)
    return digest


def withdraw(scratch: Path, final: Path) -> None:
    """Turn a failed save back into debris by renaming it, then delete it. The failure may have come after its publication."""
    with contextlib.suppress(OSError):  # it never came so far
        final.rename(scratch)
    shutil.rmtree(scratch, ignore_errors=True)


def remove_debris(directory: Path, generation: int) -> None:
    """Delete what saves of older generations left unfinished; only one generation writes at a time. It is moved out of reach first: whoever
    still writes there, behind steps or behind a broken link, finds nothing to write to and nothing to publish."""
    for folder in sorted(directory.glob(f"step-*{SCRATCH}")):  # what an earlier removal has left comes first
        name = NAME.fullmatch(folder.name)
        if name is not None and int(name["generation"]) < generation:
            gone = directory / f"{directory_name(int(name['step']), int(name['generation']))}{GONE}"
            with contextlib.suppress(OSError):  # a disk that refuses keeps its debris, which does no harm
                folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
