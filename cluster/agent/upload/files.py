"""Uploads what ranks leave in $PACELINE_ARTIFACTS, as soon as it is written and again when it has changed.

Small files go many at a time, large ones in chunks beside them, so that no file waits for a larger one. What a rank has left is sent after
its end too, by this agent or the next one, and removed from the node when its job has no rank here and all of it is with the coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx
import msgspec

from paceline.cluster.agent.folders import KEEP_EMPTY_SECONDS, KEEP_WORK_SECONDS
from paceline.cluster.agent.removal import remove_tree
from paceline.cluster.agent.upload.artifacts import FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.agent.upload.left_files import JOURNAL_SUFFIX, FileVersion, LeftFiles
from paceline.cluster.agent.upload.masking import NOTHING, SecretMask
from paceline.cluster.agent.upload.transfer import REQUEST_TIMEOUT_SECONDS, CoordinatorAwayError, send
from paceline.cluster.agent.upload.withheld_files import MaskOf, folder_of, has_secret, tell
from paceline.cluster.protocol import ARTIFACT_FILES_PATH, ARTIFACTS_PATH, RankKey
from paceline.monitoring.artifact_files import (
    BATCH_BYTES,
    BATCH_FILES,
    INLINE_BYTES,
    MAX_FILE_BYTES,
    FilesOffer,
    FilesReceived,
    OfferedFile,
)
from paceline.monitoring.artifacts import CHUNK_BYTES, Received
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.beats import until_beat
from paceline.monitoring.files import UnfitFileError, open_file
from paceline.training.rank_folder import FILES

LOOK_SECONDS = 1.0
#: A look that takes long is followed by a rest of so many times its length.
REST = 5.0
#: With the last chunk the coordinator reads the whole file: so much at least in a second.
CHECKED_BYTES_PER_SECOND = 20 << 20
LARGE_AT_ONCE = 2
#: How often it is looked whether the files that others send have arrived.
UNDER_WAY_SECONDS = 0.05
#: For the files of an ended rank to be looked through for secrets, before its output ends.
LOOK_THROUGH_SECONDS = 60.0
READ_BYTES = 1 << 20

log = logging.getLogger(__name__)


class FileChangedError(Exception):
    """A file was changed, replaced or removed while it was read: a later look finds it as it is then."""


@dataclass(frozen=True)
class ReadyFile:
    """A version of a file that is to be sent."""

    files: LeftFiles
    name: str
    version: FileVersion

    @property
    def path(self) -> Path:
        return self.files.folder / self.name

    @property
    def key(self) -> tuple[Path, str]:
        return self.files.folder, self.name

    def offered(self, sha256: str, content: bytes | None = None) -> OfferedFile:
        path, version = self.files.path_in_job(self.name), self.version
        return OfferedFile(path=path, bytes=version.size, sha256=sha256, changed_ns=max(0, version.ctime_ns), content=content)

    def offer(self, *files: OfferedFile) -> FilesOffer:
        job, generation, rank = self.files.place
        return FilesOffer(job_id=job, generation=generation, rank=rank, files=files)


class FileUploader:
    """Uploads the files of all processes. `jobs` are the folders above all rank folders."""

    def __init__(self, http: httpx.AsyncClient, jobs: JobFolders, mask_of: MaskOf = lambda job_id, generation: NOTHING) -> None:
        self._http, self._jobs, self._mask_of = http, jobs, mask_of
        self._known: dict[Path, LeftFiles] = {}
        self._large: dict[tuple[Path, str], ReadyFile] = {}
        self._under_way: set[tuple[Path, str]] = set()
        self._news = asyncio.Event()
        self._warned: set[Path] = set()
        self._looks_through: set[asyncio.Task[None]] = set()
        self._looked_seconds = 0.0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_forever())
            for _ in range(LARGE_AT_ONCE):
                tasks.create_task(self._send_large_forever())

    async def finish(self) -> None:
        """Send what is there once all ranks have ended."""
        await self.step_once(at_rest=True)
        while self._large:
            if self._large.keys() - self._under_way:
                await self._send_next_large()
            else:
                await asyncio.sleep(UNDER_WAY_SECONDS)

    async def _look_forever(self) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            try:
                await self.step_once()
                backoff.reset()
                await asyncio.sleep(max(until_beat(LOOK_SECONDS, time.monotonic()), REST * self._looked_seconds))
            except (CoordinatorAwayError, OSError) as error:
                log.warning("files of ranks are not uploaded: %s; trying again within %.0f s", error, LONGEST_RETRY_SECONDS)
                await backoff.pause()

    async def _send_large_forever(self) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            if not self._large.keys() - self._under_way:
                self._news.clear()
                await self._news.wait()
                continue
            try:
                await self._send_next_large()
                backoff.reset()
            except (CoordinatorAwayError, OSError) as error:
                log.warning("a large file of a rank waits: %s; trying again within %.0f s", error, LONGEST_RETRY_SECONDS)
                await backoff.pause()

    async def step_once(self, *, at_rest: bool = False) -> None:
        """Look at every folder once, send the small files that are ready, and line up the large ones. What fails for one folder is raised at
        the end."""
        failed: CoordinatorAwayError | OSError | None = None
        self._looked_seconds = 0.0
        for folder in await asyncio.to_thread(self._folders):
            try:
                await self._upload(folder, at_rest=at_rest)
            except (CoordinatorAwayError, OSError) as error:
                failed = error
        if failed is not None:
            raise failed

    async def _files_in(self, folder: Path) -> LeftFiles:
        known = self._known.get(folder)
        return known if known is not None else self._known.setdefault(folder, await asyncio.to_thread(LeftFiles.at, folder))

    def _folders(self) -> list[Path]:
        jobs = self._jobs.due({folder.parents[1].name for folder in self._known}, time.monotonic())
        found = [path for job in jobs for path in (job / FILES).glob("g*.rank*") if is_place(path)]
        self._known = {folder: files for folder, files in self._known.items() if folder in set(found)}
        return sorted(found)

    async def _upload(self, folder: Path, *, at_rest: bool) -> None:
        files = await self._files_in(folder)
        began = time.monotonic()
        mask = self._mask(files)
        if mask is None:
            return  # its secrets are not known yet
        found = await asyncio.to_thread(lambda: files.look(at_rest=at_rest))
        self._looked_seconds += time.monotonic() - began
        ready = [ReadyFile(files, name, version) for name, version in sorted(found.items()) if not mask.withheld]
        for each in ready:
            if each.version.size > INLINE_BYTES and (each.key not in self._large or self._large[each.key].version != each.version):
                self._large[each.key] = each
                self._news.set()
        small = [each for each in ready if each.version.size <= INLINE_BYTES]
        for batch in batches(small):
            await self._send_small(batch)
        if not ready and not at_rest and (files.is_finished or mask.withheld):
            await asyncio.to_thread(self._remove_if_over, files)

    def _remove_if_over(self, files: LeftFiles) -> None:
        """Remove the folder where no rank of its job is left on this node. Files that the coordinator does not keep, or that are not sent, stay for some
        days."""
        job, now = files.folder.parents[1], time.time()
        kept_for = KEEP_EMPTY_SECONDS if files.is_finished and not files.refused else KEEP_WORK_SECONDS
        if now - files.last_change < kept_for or any(job.glob("g*/rank*/order.json")):
            return
        try:
            remove_tree(files.folder)
            files.journal.unlink(missing_ok=True)
            if not any(files.folder.parent.iterdir()):
                files.folder.parent.rmdir()
        except OSError as error:
            if files.folder not in self._warned:
                self._warned.add(files.folder)
                log.warning("%s cannot be removed: %s; it stays", files.folder, error)

    # -- small files

    async def _send_small(self, batch: Sequence[ReadyFile]) -> None:
        read = await asyncio.to_thread(read_whole, batch)
        read = [(each, content) for each, content in read if not self._withheld(each, io.BytesIO(content))]
        if not read:
            return
        offered = [each.offered(hashlib.sha256(content).hexdigest(), content) for each, content in read]
        received = await self._offer(read[0][0].offer(*offered))
        for number, (each, _) in enumerate(read):
            each.files.note(each.name, each.version, kept=received is not None and received.files[number].refused is None)

    # -- large files

    async def _send_next_large(self) -> None:
        """Send one large file of those that nobody else sends; on failure it stays in line."""
        key = next(key for key in self._large if key not in self._under_way)
        self._under_way.add(key)
        try:
            ready = self._large[key]
            await self._send_large(ready)
        except FileChangedError:
            log.debug("%s was changed while it was sent", ready.path)
        finally:
            self._under_way.discard(key)
        if self._large.get(key) is ready:
            del self._large[key]

    async def _send_large(self, ready: ReadyFile) -> None:
        size = ready.version.size
        if size > MAX_FILE_BYTES:  # refused unread
            await self._offer(ready.offer(ready.offered("0" * 64)))
            ready.files.note(ready.name, ready.version, kept=False)
            return
        if await asyncio.to_thread(self._withheld_on_disk, ready):
            return
        digest = await asyncio.to_thread(sha256_of, ready)
        received = await self._offer(ready.offer(ready.offered(digest)))
        answer = None if received is None else received.files[0]
        if answer is None or answer.refused is not None:
            ready.files.note(ready.name, ready.version, kept=False)
            return
        number = answer.next_chunk
        while number is not None:
            data = await asyncio.to_thread(read_chunk, ready, number)
            last = (number + 1) * CHUNK_BYTES >= size
            timeout = REQUEST_TIMEOUT_SECONDS + (size / CHECKED_BYTES_PER_SECOND if last else 0.0)
            taken = await send(self._http, "PUT", f"{ARTIFACTS_PATH}/{answer.id}/{number}", data, Received, timeout)
            if taken is None:
                raise FileChangedError  # a newer version was offered, or it was written to through a memory map, which no time tells
            number = taken.next_chunk
        ready.files.note(ready.name, ready.version, kept=True)

    # -- secrets

    def look_through(self, process: RankKey, then: Callable[[], None]) -> None:
        """Look at the files that an ended process has left, say in its output which are not sent since a secret is in them, and call `then`: later looks may come
        when its output is sent, and the process forgotten. Without known secrets `then` is called at once."""
        folder, mask = (
            self._jobs.path / process.job_id / FILES / f"g{process.generation}.rank{process.rank}",
            self._mask_of(process.job_id, process.generation),
        )
        if not mask or mask.withheld or not is_place(folder):
            return then()
        task = asyncio.create_task(self._look_through(folder, then))
        self._looks_through.add(task)
        task.add_done_callback(self._looks_through.discard)
        return None

    async def _look_through(self, folder: Path, then: Callable[[], None]) -> None:
        try:
            async with asyncio.timeout(LOOK_THROUGH_SECONDS):
                files = await self._files_in(folder)
                found = await asyncio.to_thread(lambda: files.look(at_rest=True))
                for name, version in sorted(found.items()):
                    if files.handled.get(name) != version:  # which a look meanwhile has told
                        with contextlib.suppress(FileChangedError):  # a later look finds it again
                            await asyncio.to_thread(self._withheld_on_disk, ReadyFile(files, name, version))
        except OSError as error:  # TimeoutError is one; what has a secret in it is found again before it is sent
            log.warning("%s is not looked through before its rank's output ends: %s", folder, str(error) or type(error).__name__)
        finally:
            then()

    def _mask(self, files: LeftFiles) -> SecretMask | None:
        job_id, generation, _ = files.place
        return self._mask_of(job_id, generation)

    def _withheld(self, ready: ReadyFile, content: BinaryIO) -> bool:
        """Whether a file has a secret in it and so stays here. Nothing more is done about this version of it, and it goes with its folder."""
        mask = self._mask(ready.files)
        if not mask or (mask.text(ready.name) == ready.name and not has_secret(content, mask)):
            return False
        rank = folder_of(self._jobs.path, *ready.files.place)
        ready.files.withhold(ready.name, ready.version, lambda: tell(rank, ready.name, mask))
        return True

    def _withheld_on_disk(self, ready: ReadyFile) -> bool:
        if not self._mask(ready.files):
            return False
        with _open(ready) as content:
            return self._withheld(ready, content)

    # -- requests

    async def _offer(self, offer: FilesOffer) -> FilesReceived | None:
        return await send(self._http, "POST", ARTIFACT_FILES_PATH, msgspec.json.encode(offer), FilesReceived)


def is_place(path: Path) -> bool:
    """Whether a folder has the name of a rank's place: g3.rank0."""
    generation, _, rank = path.name.partition(".")
    numbers = generation[1:], rank.removeprefix("rank")
    return not path.name.endswith(JOURNAL_SUFFIX) and all(map(str.isdecimal, numbers)) and path.is_dir() and not path.is_symlink()


def batches(ready: Sequence[ReadyFile]) -> list[list[ReadyFile]]:
    """Small files as they travel together: so many, and so many bytes, at most."""
    found: list[list[ReadyFile]] = []
    size = 0
    for each in ready:
        if not found or len(found[-1]) == BATCH_FILES or size + each.version.size > BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(each)
        size += each.version.size
    return found


def read_whole(batch: Sequence[ReadyFile]) -> list[tuple[ReadyFile, bytes]]:
    """The contents of small files; without those that have changed, which a later look finds again."""
    found = []
    for each in batch:
        try:
            found.append((each, _read(each, 0, INLINE_BYTES + 1)))
        except FileChangedError:
            continue
    return found


def read_chunk(ready: ReadyFile, number: int) -> bytes:
    return _read(ready, number * CHUNK_BYTES, CHUNK_BYTES)


def _read(ready: ReadyFile, start: int, size: int) -> bytes:
    """A part of a file of this version. Raises FileChangedError where it is another one by now, before or after reading."""
    with _open(ready) as content:
        content.seek(start)
        data = content.read(min(size, ready.version.size - start))
        _require_unchanged(ready, content)
    return data


def sha256_of(ready: ReadyFile) -> str:
    """The hash of a file of this version. Raises FileChangedError where it is another one by now."""
    digest = hashlib.sha256()
    with _open(ready) as content:
        while data := content.read(READ_BYTES):
            digest.update(data)
        _require_unchanged(ready, content)
    return digest.hexdigest()


def _open(ready: ReadyFile) -> BinaryIO:
    try:
        return open_file(ready.path, owner=ready.files.owner)
    except UnfitFileError as error:
        log.warning("%s", error)
        ready.files.note(ready.name, ready.version, kept=False)  # a link by now, or unreadable: it stays so until it is changed
        raise FileChangedError from error
    except OSError as error:
        raise FileChangedError from error


def _require_unchanged(ready: ReadyFile, content: BinaryIO) -> None:
    if FileVersion.of(os.fstat(content.fileno())) != ready.version:
        raise FileChangedError
