"""What makes a directory a checkpoint: a manifest with the hash of every file and of itself, written last. No torch in here."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from monitoring.files import sync_folder, write_durably
from training.errors import CheckpointCorruptError, CheckpointUnreachableError
from training.steps.loss_scale import LossScale

MANIFEST = "manifest.json"
SCRATCH = ".tmp"
GONE = f".gone{SCRATCH}"
FORMAT = 2
#: Of a file in a checkpoint: in it, and not in a folder of it.
FILE = re.compile(r"(?!\.\.?$)[\w.-]+")
NAME = re.compile(r"step-(?P<step>\d+)\.g(?P<generation>\d+)(?P<debris>(\.gone)?\.tmp)?")


class File(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    job_id: str
    step: int
    generation: int
    world_size: int
    seed: int  # with the step, all there is to the state of random numbers and data
    spec_sha256: str
    created: float
    best: float | None  # of the policy's metric so far
    loss_scale: LossScale | None = None  # of fp16
    metrics: dict[str, float | str]  # numbers that JSON lacks by name, as in MetricRecord
    parameters_sha256: str | None = None  # `training.saving.fingerprint`: the same whatever world saved them
    files: dict[str, File]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


@dataclass(frozen=True)
class Committed:
    """A checkpoint that is there."""

    directory: Path
    manifest: Manifest
    manifest_sha256: str

    @property
    def announcement(self) -> dict[str, Any]:
        """What the coordinator is to know of it."""
        return {
            "directory": str(self.directory),
            "step": self.manifest.step,
            "generation": self.manifest.generation,
            "bytes": self.manifest.bytes,
            "manifest_sha256": self.manifest_sha256,
            "parameters_sha256": self.manifest.parameters_sha256,
            "metrics": self.manifest.metrics,
        }


class _Made(msgspec.Struct, frozen=True):
    format: int


_SEALED = re.compile(rb'(?P<body>.+),\n  "sha256": "(?P<sha256>[0-9a-f]{64})"\n\}', re.DOTALL)


def directory_name(step: int, generation: int) -> str:
    return f"step-{step}.g{generation}"


def describe(path: Path) -> File:
    with open(path, "rb") as file:
        return File(bytes=os.fstat(file.fileno()).st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def write(folder: Path, manifest: Manifest) -> str:
    """Durably; returns the SHA-256 of the file as a whole."""
    content = sealed(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    write_durably(folder / MANIFEST, content)
    return hashlib.sha256(content).hexdigest()


def sealed(document: bytes) -> bytes:
    """A JSON object with one member more, the SHA-256 of all that stands before it: who vouches for others must be beyond doubt."""
    body = document.removesuffix(b"\n}")
    return b'%b,\n  "sha256": "%b"\n}' % (body, hashlib.sha256(body).hexdigest().encode())


def is_sealed(content: bytes) -> bool:
    found = _SEALED.fullmatch(content)
    return found is not None and hashlib.sha256(found["body"]).hexdigest().encode() == found["sha256"]


def read(folder: Path) -> Manifest:
    """Raises CheckpointCorruptError if it is not, to the last bit, what was written for this very folder."""
    try:
        content = (folder / MANIFEST).read_bytes()
        made = msgspec.json.decode(content, type=_Made).format
        if made == FORMAT and not is_sealed(content):
            raise CheckpointCorruptError(f"{folder}: {MANIFEST} is damaged (it does not match its own SHA-256)")
        if made != FORMAT:
            raise CheckpointCorruptError(f"{folder}: format {made}; this version reads {FORMAT}")
        manifest = msgspec.json.decode(content, type=Manifest)
    except OSError as error:
        raise _not_read(folder, f"{folder}: no readable {MANIFEST} ({error.strerror})", error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointCorruptError(f"{folder}: {MANIFEST} is damaged ({error})") from error
    for name in manifest.files:
        require_plain(folder, name)
    own_name = directory_name(manifest.step, manifest.generation)
    if NAME.fullmatch(folder.name) and folder.name != own_name:
        raise CheckpointCorruptError(f"{folder}: holds {own_name}, which was put in its place")
    return manifest


def _not_read(folder: Path, what: str, error: OSError) -> CheckpointCorruptError:
    """A file that is missing in a folder that is there is damage."""
    is_damage = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError) and folder.is_dir()
    return CheckpointCorruptError(what) if is_damage else CheckpointUnreachableError(what)


def require_plain(folder: Path, name: str) -> None:
    """Hashes say that a checkpoint is whole, not who made it: it may not send its reader to other folders."""
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
            raise _not_read(folder, f"{folder / name}: {error.strerror}", error) from error
        if found != manifest.files[name]:
            raise CheckpointCorruptError(f"{folder / name}: {found.bytes} bytes that do not match the manifest's SHA-256")


def digest(folder: Path) -> str:
    return describe(folder / MANIFEST).sha256


def published(directory: Path, known: Collection[str]) -> Iterator[tuple[Path, Manifest]]:
    """Of the checkpoints in `directory` those that are not `known`, as far as their manifests can be read."""
    for folder in sorted(directory.glob("step-*")):
        name = NAME.fullmatch(folder.name)
        if name is not None and not name["debris"] and str(folder) not in known:
            with contextlib.suppress(CheckpointCorruptError):  # it is of no use, and said to be damaged by whoever wants it
                yield folder, read(folder)


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
    """Of a save that failed, perhaps in its very last moment: it is debris again before any of it is deleted."""
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
            with contextlib.suppress(OSError):  # a disk that refuses keeps its debris, which harms nobody
                folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
