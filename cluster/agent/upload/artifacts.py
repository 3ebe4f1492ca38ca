"""Uploads the files that ranks leave for download to the coordinator: offered by their notes, sent chunk by chunk, then removed here.

The folders alone tell what is to do, so it survives this agent, and ranks that are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Self

import httpx
import msgspec

from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.agent.upload.masking import NOTHING, SecretMask
from paceline.cluster.agent.upload.transfer import CoordinatorAwayError, send
from paceline.cluster.agent.upload.withheld_files import MaskOf, has_secret, tell
from paceline.cluster.protocol import ARTIFACTS_PATH
from paceline.monitoring.artifacts import CHUNK_BYTES, NOTE_SUFFIX, Offer, RankArtifact, Received, file_of
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.beats import until_beat
from paceline.monitoring.files import UnfitFileError, open_file, read_file
from paceline.training.rank_folder import RankFolder

POLL_SECONDS = 1.0
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
#: The coordinator takes an offer of 64 KiB. A larger one would be offered for ever, and all others late.
MAX_NOTE_BYTES = 48 << 10

log = logging.getLogger(__name__)


class ArtifactUploader:
    """Uploads the artifacts of all ranks. `jobs` are the folders above all rank folders."""

    def __init__(self, http: httpx.AsyncClient, jobs: JobFolders, mask_of: MaskOf = lambda job_id, generation: NOTHING) -> None:
        self._http, self._jobs, self._mask_of = http, jobs, mask_of
        self._unsent: set[str] = set()  # jobs whose last look has found something

    async def run(self) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            try:
                await self.upload_all()
                backoff.reset()
                await asyncio.sleep(until_beat(POLL_SECONDS, time.monotonic()))
            except (CoordinatorAwayError, OSError) as error:
                log.warning("files of ranks are not uploaded: %s; trying again within %.0f s", error, LONGEST_RETRY_SECONDS)
                await backoff.pause()

    async def upload_all(self) -> None:
        """Upload every file that has a note now. Raises CoordinatorAwayError at the end: a file that is refused again and again holds up
        no other."""
        failed: CoordinatorAwayError | OSError | None = None
        folders = self._jobs.due(self._unsent, time.monotonic())
        notes = await asyncio.to_thread(_notes_in, folders)
        self._unsent = {note.parents[3].name for note in notes}
        for note in notes:
            await asyncio.sleep(0)  # a rank may leave notes by the thousand that need no request
            try:
                with ArtifactsFolder(note.parent) as folder:
                    await self._upload_one(folder, note)
            except UnfitFileError:  # nothing of it is read or removed
                continue
            except (CoordinatorAwayError, OSError) as error:
                failed = error
        if failed is not None:
            raise failed

    async def _upload_one(self, folder: ArtifactsFolder, note: Path) -> None:
        offer, name = folder.read_offer(note.name), file_of(note).name
        if offer is None:
            folder.rename(note.name, f"{name}.damaged")  # reported once, and kept for inspection
            return
        mask = self._mask_of(offer.job_id, offer.generation)
        if mask is None or mask.withheld:
            return  # its secrets are not known: it stays here, with its generation
        if not mask or not await asyncio.to_thread(_is_withheld, folder, note, mask):
            await self._upload(offer, folder, name)
        folder.remove(name)
        folder.remove(note.name)

    async def _upload(self, offer: Offer, folder: ArtifactsFolder, name: str) -> None:
        """Upload one file until the coordinator has it, or refuses it."""
        received = await send(self._http, "POST", ARTIFACTS_PATH, msgspec.json.encode(offer), Received)
        while received is not None and received.next_chunk is not None:
            data = await asyncio.to_thread(folder.read_chunk, name, received.next_chunk)
            if not data:
                log.error("%s has not the %d bytes of its note; it is given up", folder.path / name, offer.artifact.bytes)
                return
            received = await send(self._http, "PUT", f"{ARTIFACTS_PATH}/{received.id}/{received.next_chunk}", data, Received)


class ArtifactsFolder:
    """A rank's folder of artifacts, opened once: whatever the rank's user puts in its place meanwhile is neither read nor removed. As root, only a
    folder and files of that user are touched.

    Raises UnfitFileError where it is a link or of another user, or another OSError. `path`: jobs/<job>/g<generation>/rank<rank>/artifacts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner = path.parent.stat().st_uid if os.geteuid() == 0 else None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError as error:
            raise UnfitFileError(f"{path} is no folder") from error
        if self._owner not in (None, os.fstat(self._descriptor).st_uid):
            os.close(self._descriptor)
            raise UnfitFileError(f"{path} is no folder of user {self._owner}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def open(self, name: str) -> BinaryIO:
        """Open a plain file in it. Raises UnfitFileError, or another OSError."""
        return open_file(self.path / name, self._owner, self._descriptor)

    def rename(self, name: str, to: str) -> None:
        os.rename(name, to, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, unless it is gone."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def read_offer(self, note: str) -> Offer | None:
        """The offer of a file, from its note and the folder's path."""
        job, generation, rank = self.path.parts[-4:-1]
        try:
            content = read_file(self.path / note, MAX_NOTE_BYTES, self._owner, self._descriptor)
            artifact = msgspec.json.decode(content, type=RankArtifact)
            return Offer(job_id=job, generation=int(generation.removeprefix("g")), rank=int(rank.removeprefix("rank")), artifact=artifact)
        except (UnfitFileError, ValueError) as error:
            log.error("%s is damaged, and what it is about will not be uploaded: %s", self.path / note, error)
            return None

    def read_chunk(self, name: str, number: int) -> bytes:
        """A chunk of a file; empty behind its end."""
        try:
            with self.open(name) as content:
                content.seek(number * CHUNK_BYTES)
                return content.read(CHUNK_BYTES)
        except FileNotFoundError:
            return b""
        except UnfitFileError as error:
            log.error("%s", error)
            return b""


def _notes_in(jobs: Sequence[Path]) -> list[Path]:
    return [note for job in jobs for note in sorted(job.glob(f"g*/rank*/artifacts/?*{NOTE_SUFFIX}"))]


def _is_withheld(folder: ArtifactsFolder, note: Path, mask: SecretMask) -> bool:
    """Whether a file, or its note, has a secret in it and so is not sent."""
    try:
        found = False
        for path in (note, file_of(note)):
            with folder.open(path.name) as content:
                found = found or has_secret(content, mask)
    except OSError:
        return False  # what reads it next tells why it cannot be read
    if found:
        tell(RankFolder.at(folder.path.parent), file_of(note).name, mask)
    return found
