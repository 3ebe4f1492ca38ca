"""Uploads the files that ranks leave for download to the coordinator: offered by their notes, sent chunk by chunk, then removed here.

The folders alone tell what is to do, so it survives this agent, and ranks that are gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import httpx
import msgspec

from paceline.cluster.agent.upload.masking import NOTHING, SecretMask
from paceline.cluster.agent.upload.transfer import CoordinatorAwayError, send
from paceline.cluster.agent.upload.withheld_files import MaskOf, has_secret, tell
from paceline.cluster.protocol import ARTIFACTS_PATH
from paceline.monitoring.artifacts import CHUNK_BYTES, NOTE_SUFFIX, Offer, RankArtifact, Received, file_of
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.files import UnfitFileError, open_file, read_file
from paceline.training.rank_folder import RankFolder

POLL_SECONDS = 1.0
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
MAX_NOTE_BYTES = 1 << 20

log = logging.getLogger(__name__)


class ArtifactUploader:
    """Uploads the artifacts of all ranks. `jobs` is the folder above all rank folders."""

    def __init__(self, http: httpx.AsyncClient, jobs: Path, mask_of: MaskOf = lambda job_id, generation: NOTHING) -> None:
        self._http, self._jobs, self._mask_of = http, jobs, mask_of

    async def run(self) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            try:
                await self.upload_all()
                backoff.reset()
                await asyncio.sleep(POLL_SECONDS)
            except (CoordinatorAwayError, OSError) as error:
                log.warning("files of ranks are not uploaded: %s; trying again within %.0f s", error, LONGEST_RETRY_SECONDS)
                await backoff.pause()

    async def upload_all(self) -> None:
        """Upload every file that has a note now. Raises CoordinatorAwayError at the end: a file that is refused again and again holds up
        no other."""
        failed: CoordinatorAwayError | OSError | None = None
        for note in sorted(self._jobs.glob(f"*/g*/rank*/artifacts/*{NOTE_SUFFIX}")):
            if note.parent.is_symlink():
                continue
            try:
                await self._upload_one(note)
            except (CoordinatorAwayError, OSError) as error:
                failed = error
        if failed is not None:
            raise failed

    async def _upload_one(self, note: Path) -> None:
        offer = read_offer(note)
        if offer is None:
            note.rename(note.with_suffix(".damaged"))  # reported once, and kept for inspection
            return
        mask = self._mask_of(offer.job_id, offer.generation)
        if mask is None or mask.withheld:
            return  # its secrets are not known: it stays here, with its generation
        if not mask or not await asyncio.to_thread(_is_withheld, note, mask):
            await self._upload(offer, file_of(note))
        file_of(note).unlink(missing_ok=True)
        note.unlink()

    async def _upload(self, offer: Offer, file: Path) -> None:
        """Upload one file until the coordinator has it, or refuses it."""
        received = await send(self._http, "POST", ARTIFACTS_PATH, msgspec.json.encode(offer), Received)
        while received is not None and received.next_chunk is not None:
            data = await asyncio.to_thread(read_chunk, file, received.next_chunk)
            if not data:
                log.error("%s has not the %d bytes of its note; it is given up", file, offer.artifact.bytes)
                return
            received = await send(self._http, "PUT", f"{ARTIFACTS_PATH}/{received.id}/{received.next_chunk}", data, Received)


def _is_withheld(note: Path, mask: SecretMask) -> bool:
    """Whether a file, or its note, has a secret in it and so is not sent."""
    try:
        found = False
        for path in (note, file_of(note)):
            with open_file(path, owner=_owner_of(path)) as content:
                found = found or has_secret(content, mask)
    except OSError:
        return False  # what reads it next tells why it cannot be read
    if found:
        tell(RankFolder.at(note.parents[1]), file_of(note).name, mask)
    return found


def read_offer(note: Path) -> Offer | None:
    """The offer of a file, from its note and the note's path: jobs/<job>/g<generation>/rank<rank>/artifacts/."""
    job, generation, rank = note.parts[-5:-2]
    try:
        artifact = msgspec.json.decode(read_file(note, MAX_NOTE_BYTES, owner=_owner_of(note)), type=RankArtifact)
        return Offer(job_id=job, generation=int(generation.removeprefix("g")), rank=int(rank.removeprefix("rank")), artifact=artifact)
    except (UnfitFileError, ValueError) as error:
        log.error("%s is damaged, and what it is about will not be uploaded: %s", note, error)
        return None


def read_chunk(file: Path, number: int) -> bytes:
    """A chunk of the file; empty behind its end."""
    try:
        with open_file(file, owner=_owner_of(file)) as content:
            content.seek(number * CHUNK_BYTES)
            return content.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""
    except UnfitFileError as error:
        log.error("%s", error)
        return b""


def _owner_of(file: Path) -> int | None:
    """The owner of the rank's folder, with whose rights root opens the file, wherever a link may lead. None where the agent is not root."""
    return file.parents[1].stat().st_uid if os.geteuid() == 0 else None
