"""Downloads of checkpoints whose folder the coordinator's machine sees, or whose object store its credentials may read: as they are, in a tar, or
their weights as safetensors.

The folder's name comes from a rank, so nothing is read of it but a sealed manifest, which must be the one that was announced, and the plain
files that this lists. The folder is opened once: another one in its place gives nothing. A file has the size that the manifest says, and what
it contains is compared with the manifest's hash while it is sent.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib.util
import os
import shutil
import sys
import tarfile
import tempfile
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from paceline.api.core.context import Services
from paceline.api.core.daemon_calls import AllCallsStuckError
from paceline.api.errors import ProblemError
from paceline.api.schemas.checkpoints import CheckpointFile, CheckpointFiles
from paceline.db.models.checkpoints import KEPT_STATES, CheckpointRow
from paceline.location import ROOT
from paceline.monitoring.files import open_file
from paceline.objects.client import HASTY, ObjectClient
from paceline.objects.endpoints import require_listed
from paceline.objects.errors import ObjectStoreError, UnlistedEndpointError
from paceline.objects.location import ObjectLocation, Place, is_url, parse
from paceline.training.errors import CheckpointCorruptError, CheckpointUnreachableError
from paceline.training.saving import manifest as manifests
from paceline.training.saving import object_manifests

READ_BYTES = 1 << 20
#: How long a file system may take to answer.
LOOK_SECONDS = 5.0
STORE_SECONDS = 30.0
EXPORT_SECONDS = 1800.0
BLOCK = tarfile.BLOCKSIZE
NO_TORCH = (
    "this coordinator has no torch, which turns a checkpoint into safetensors; download the checkpoint, or run paceline export on a node"
)


class OpenFolder:
    """A folder that stays the same one, whatever takes its place. Closed with the last reference to it. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)


@dataclass(frozen=True)
class PackedFile:
    """A file of a download. `sha256`: what it must be; None: it was made here and is not compared."""

    path: Place
    name: str
    size: int
    sha256: str | None
    options: Mapping[str, str] = field(default_factory=dict)  # of the object store, if it is in one
    folder: OpenFolder | None = None  # where it is looked up; None: by its path

    @property
    def header(self) -> bytes:
        info = tarfile.TarInfo(self.name)
        info.size, info.mode = self.size, 0o644
        return info.tobuf(tarfile.GNU_FORMAT)

    @property
    def padding(self) -> bytes:
        return bytes(-self.size % BLOCK)


class DamagedWhileSentError(Exception):
    """A file is not what its manifest says: the download breaks off, so that it cannot be taken for whole."""


async def describe(services: Services, row: CheckpointRow, node_name: str, options: Mapping[str, str]) -> CheckpointFiles:
    """The files of a checkpoint, or why they cannot be downloaded from here."""
    try:
        found = await files_of(services, row, node_name, options)
    except ProblemError as problem:
        return CheckpointFiles(readable=False, reason=problem.detail, files=[], weights=False, weights_reason=problem.detail)
    listed = [CheckpointFile(name=each.path.name, bytes=each.size, sha256=each.sha256 or "") for each in found]
    reason = None if has_torch() else NO_TORCH
    return CheckpointFiles(readable=True, reason=None, files=listed, weights=reason is None, weights_reason=reason)


async def files_of(services: Services, row: CheckpointRow, node_name: str, options: Mapping[str, str]) -> list[PackedFile]:
    """The files as they go into a tar, the manifest last. `options` say where an object store is, as the job does. Raises checkpoint_not_here
    where the coordinator does not see the folder or reach the store, checkpoint_not_usable where the checkpoint is damaged or gone, and busy
    where the file systems that were looked at hang."""
    if row.state not in KEPT_STATES:
        raise ProblemError("checkpoint_not_usable", f"checkpoint {row.id} of step {row.step} is {row.state.value}: there are no files")
    looks = services.checkpoint_looks
    try:
        if is_url(row.directory):
            require_listed(options, services.settings.listed_store_endpoints)
            async with asyncio.timeout(STORE_SECONDS):
                return await asyncio.to_thread(_read_stored_manifest, row, options)
        return await looks.run(functools.partial(_read_manifest, row.directory, row.manifest_sha256), LOOK_SECONDS)
    except AllCallsStuckError:
        text = f"{looks.limit} looks at checkpoints' folders have not come back; a file system of the coordinator's machine may hang"
        raise ProblemError("busy", text, headers={"Retry-After": "1"}) from None
    except (CheckpointUnreachableError, UnlistedEndpointError, TimeoutError) as error:
        raise not_here(row, node_name, error) from error
    except CheckpointCorruptError as error:
        raise ProblemError("checkpoint_not_usable", f"checkpoint {row.id} of step {row.step} is damaged: {error}") from error


def not_here(row: CheckpointRow, node_name: str, why: Exception) -> ProblemError:
    if is_url(row.directory):
        return ProblemError(
            "checkpoint_not_here",
            f"checkpoint {row.id} lies in {row.directory}, which the coordinator cannot read ({str(why) or 'no answer'}); start the coordinator "
            f"with credentials for that store in its environment, or run paceline export {row.directory} --into DIR where they are",
        )
    return ProblemError(
        "checkpoint_not_here",
        f"checkpoint {row.id} lies in {row.directory}, as node {node_name} sees it, and the coordinator's machine does not; run "
        f"paceline export {row.id} --into DIR on that node, or mount that folder at the same place here",
    )


def _read_manifest(directory: str, manifest_sha256: str) -> list[PackedFile]:
    path = Path(directory)
    try:
        folder = OpenFolder(path) if path.is_absolute() else None
    except OSError:
        folder = None
    if folder is None:
        raise CheckpointUnreachableError(f"{path} is no folder on this machine")
    content = manifests.read_content(path, folder.descriptor)
    manifest = manifests.decoded(content, path, path.name)
    if hashlib.sha256(content).hexdigest() != manifest_sha256:
        raise CheckpointCorruptError(f"{path} is not the checkpoint that was announced")
    listed = {name: (file.bytes, file.sha256) for name, file in sorted(manifest.files.items())}
    listed[manifests.MANIFEST] = len(content), manifest_sha256
    return [PackedFile(path / name, f"{path.name}/{name}", size, sha256, folder=folder) for name, (size, sha256) in listed.items()]


def _read_stored_manifest(row: CheckpointRow, options: Mapping[str, str]) -> list[PackedFile]:
    place = parse(row.directory)
    manifest, content = object_manifests.read(place, options, HASTY)
    if hashlib.sha256(content).hexdigest() != row.manifest_sha256:
        raise CheckpointCorruptError(f"{place} is not the checkpoint that was announced")
    listed = {name: (file.bytes, file.sha256) for name, file in sorted(manifest.files.items())}
    listed[manifests.MANIFEST] = len(content), row.manifest_sha256
    return [PackedFile(place / name, f"{place.name}/{name}", size, sha256, options) for name, (size, sha256) in listed.items()]


def tar_bytes(files: Sequence[PackedFile]) -> int:
    return sum(len(each.header) + each.size + len(each.padding) for each in files) + 2 * BLOCK


async def tar(files: Sequence[PackedFile]) -> AsyncIterator[bytes]:
    """A tar of these files, of `tar_bytes` bytes."""
    for each in files:
        yield each.header
        async for data in content(each):
            yield data
        yield each.padding
    yield bytes(2 * BLOCK)


async def content(file: PackedFile) -> AsyncIterator[bytes]:
    """The content of a file. Raises DamagedWhileSentError where it is not what it must be: before its first byte is sent if its size is
    another one, and before its last one else."""
    if isinstance(file.path, ObjectLocation):
        async for data in _stored_content(file, file.path):
            yield data
        return
    digest, left = hashlib.sha256(), file.size
    with await asyncio.to_thread(_opened, file, file.path) as source:
        while left:
            data = await asyncio.to_thread(source.read, min(READ_BYTES, left))
            left -= len(data)
            await asyncio.to_thread(digest.update, data)
            if not data or (left == 0 and file.sha256 not in (None, digest.hexdigest())):
                raise DamagedWhileSentError(f"{file.path} is not what its manifest says")
            yield data


def _opened(file: PackedFile, path: Path) -> BinaryIO:
    source = open_file(path, dir_fd=None if file.folder is None else file.folder.descriptor)
    if os.fstat(source.fileno()).st_size != file.size:
        source.close()
        raise DamagedWhileSentError(f"{path} is not what its manifest says")
    return source


async def _stored_content(file: PackedFile, place: ObjectLocation) -> AsyncIterator[bytes]:
    """The content of an object. The last piece is held back until the hash of all is right."""
    digest, size, held = hashlib.sha256(), 0, b""
    pieces: Iterator[bytes] = await asyncio.to_thread(ObjectClient(place.parent, file.options, HASTY).pieces, place.name)
    try:
        while data := await asyncio.to_thread(next, pieces, b""):
            if held:
                yield held
            await asyncio.to_thread(digest.update, data)
            held, size = data, size + len(data)
    except ObjectStoreError as error:
        raise DamagedWhileSentError(str(error)) from error
    if size != file.size or digest.hexdigest() != file.sha256:
        raise DamagedWhileSentError(f"{place} is not what its manifest says")
    yield held


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


async def export(row: CheckpointRow, options: Mapping[str, str]) -> tuple[Path, list[PackedFile]]:
    """Write the weights as safetensors into a new temporary folder, in a process of its own. Returns that folder, which the caller
    removes, and its files. Raises checkpoint_not_usable."""
    if not has_torch():
        raise ProblemError("checkpoint_not_usable", NO_TORCH)
    scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="paceline-export-"))
    try:
        folder = scratch / f"{Path(row.directory).name}-safetensors"
        command = [sys.executable, "-m", "paceline.training.saving.export", row.directory, str(folder)]
        command += [word for name, value in options.items() for word in (f"--store-{name}", value)]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(EXPORT_SECONDS):
                _, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            why = (errors.decode(errors="replace").strip().splitlines() or [f"the export ended with code {process.returncode}"])[-1]
            raise ProblemError("checkpoint_not_usable", why)
        made = sorted(path for path in folder.iterdir() if path.is_file())
        return scratch, [PackedFile(path, f"{folder.name}/{path.name}", path.stat().st_size, None) for path in made]
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        raise
