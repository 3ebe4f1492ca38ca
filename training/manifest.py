"""What makes a directory a checkpoint: a manifest with the hash of every file, written last. No torch in here."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from monitoring.files import sync_folder, write_durably
from training.errors import CheckpointCorruptError

MANIFEST = "manifest.json"
FORMAT = 1
NAME = re.compile(r"step-(?P<step>\d+)\.g(?P<generation>\d+)(?P<debris>\.tmp)?")


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
    metrics: dict[str, float | str]  # numbers that JSON lacks by name, as in MetricRecord
    files: dict[str, File]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


def directory_name(step: int, generation: int) -> str:
    return f"step-{step}.g{generation}"


def describe(path: Path) -> File:
    with open(path, "rb") as file:
        return File(bytes=os.fstat(file.fileno()).st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def write(folder: Path, manifest: Manifest) -> str:
    """Durably; returns the SHA-256 of the manifest itself."""
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    write_durably(folder / MANIFEST, content)
    return hashlib.sha256(content).hexdigest()


def read(folder: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        raise CheckpointCorruptError(f"{folder}: no readable {MANIFEST} ({error.strerror})") from error
    except msgspec.DecodeError as error:
        raise CheckpointCorruptError(f"{folder}: {MANIFEST} is damaged ({error})") from error
    if manifest.format != FORMAT:
        raise CheckpointCorruptError(f"{folder}: format {manifest.format}; this version reads {FORMAT}")
    return manifest


def verify(folder: Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Hash the files `names` and compare."""
    for name in names:
        try:
            found = describe(folder / name)
        except OSError as error:
            raise CheckpointCorruptError(f"{folder / name}: {error.strerror}") from error
        if found != manifest.files[name]:
            raise CheckpointCorruptError(f"{folder / name}: {found.bytes} bytes that do not match the manifest's SHA-256")


def publish(scratch: Path, final: Path) -> None:
    """The moment the directory becomes a checkpoint."""
    scratch.rename(final)
    sync_folder(final.parent)


def remove_debris(directory: Path, generation: int) -> None:
    """Delete what saves of older generations left unfinished; only one generation writes at a time."""
    for folder in directory.glob("step-*.tmp"):
        name = NAME.fullmatch(folder.name)
        if name is not None and int(name["generation"]) < generation:
            shutil.rmtree(folder, ignore_errors=True)
