"""Files that ranks leave: offered by their agents, stored in chunks, served for download.

The row is in the control database, the contents in the metrics database: a row is there before its contents, and goes before them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import node_actor
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.artifacts import Artifact
from paceline.api.schemas.common import Actor
from paceline.api.services.artifacts import media_offers
from paceline.api.services.artifacts.file_versions import FileVersions
from paceline.api.services.lifecycle import events, node_lifecycle
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import aged, rank_marks, registry
from paceline.db.repositories import artifact_files as file_rows
from paceline.db.repositories import artifacts as rows
from paceline.db.repositories.artifact_files import FILE, KEPT_FOR_A_MODEL
from paceline.monitoring import artifacts as wire
from paceline.monitoring.artifacts import MAX_ARTIFACT_BYTES, Offer, Received
from paceline.monitoring.points import MAX_STEP

#: The most bytes of all traces and gradients of one job together, and the most of them. A failed one has no bytes, and a row like any other.
MAX_JOB_BYTES, MAX_JOB_ARTIFACTS = 1 << 30, 100_000
#: What is kept of the reason that a rank gives why it has left no file.
ERROR_CHARACTERS = 1_000
MAX_REQUEST_CHARACTERS = 100
CHUNKS_DROPPED_AT_ONCE = 8
#: Stands in answers for the id of a file that is not even noted.
REFUSED = "refused"
_HEXADECIMAL = frozenset("0123456789abcdef")


async def find(session: AsyncSession, job_id: str, artifact_id: str) -> ArtifactRow:
    row = await rows.get(session, artifact_id)
    if row is None or row.job_id != job_id:
        raise not_found("artifact", artifact_id)
    return row


def describe(row: ArtifactRow) -> Artifact:
    return Artifact(
        id=row.id,
        job_id=row.job_id,
        generation=row.generation,
        rank=row.rank,
        kind=row.kind,
        name=row.name,
        first_step=row.first_step,
        last_step=row.last_step,
        bytes=row.bytes,
        sha256=row.sha256,
        state=state_of(row),
        error=row.error,
        request_id=row.request_id,
        path=row.path,
        created_at=row.created_at,
    )


def state_of(row: ArtifactRow) -> Literal["arriving", "ready", "failed"]:
    return "failed" if row.error is not None else "arriving" if row.stored_at is None else "ready"


def file_name(job_name: str, row: ArtifactRow) -> str:
    place = f"{job_name}-g{row.generation}-rank{row.rank}"
    match row.kind:
        case "gradients":
            return f"{place}-step{row.first_step}-gradients.json.gz"
        case "snapshot":
            return f"{place}-step{row.first_step}-gradients.pt"
    return f"{place}-steps{row.first_step}-{row.last_step}.json.gz"


# --- from agents


async def accept(services: Services, node: NodeRow, offer: Offer) -> Received:
    """Note an offered file, once, and return the chunk to send next. Raises not_found for a rank that the node does not hold."""
    check(offer)
    async with services.write() as session:
        place = (offer.job_id, offer.generation, offer.rank)
        if place not in await rank_marks.ranks_of(session, node.id, {offer.job_id}):
            raise not_found("rank of this node", f"{offer.rank} of generation {offer.generation} of job {offer.job_id}")
        if await aged.removal(session, offer.job_id) is not None:
            return Received(id=REFUSED, next_chunk=None)
        row = await rows.by_name(session, *place, offer.artifact.name)
        if row is None and offer.artifact.media is not None:
            row = await media_offers.note(session, node, offer, services.now())
            if row is None:
                return Received(id=REFUSED, next_chunk=None)
        if row is None:
            row = await _note(session, node, offer, services.now())
            if row is None:
                return Received(id=REFUSED, next_chunk=None)
    async with services.metrics.read() as points:
        return Received(id=row.id, next_chunk=None if _over(row) else await rows.chunks(points, row.id))


def check(offer: Offer) -> None:
    """Refuse names and numbers that no agent of ours sends, since they become part of answers."""
    artifact = offer.artifact
    if (artifact.kind == "media") != (artifact.media is not None):
        raise ProblemError("invalid_request", f"artifact {artifact.name!r}: exactly the kind media says under which key it was logged")
    whole = artifact.error is not None or (artifact.bytes > 0 and len(artifact.sha256) == 64 and set(artifact.sha256) <= _HEXADECIMAL)
    if not whole or not 0 < len(artifact.name) <= 200 or not artifact.name.isprintable() or "/" in artifact.name:
        raise ProblemError(
            "invalid_request", f"artifact {artifact.name!r} of {artifact.bytes} bytes: needs a file name, a size and its SHA-256"
        )
    if not 0 <= artifact.first_step <= artifact.last_step <= MAX_STEP:
        raise ProblemError("invalid_request", f"artifact {artifact.name!r}: its steps must be in order, from 0 to {MAX_STEP}")
    if artifact.request is not None and not (len(artifact.request) <= MAX_REQUEST_CHARACTERS and artifact.request.isprintable()):
        raise ProblemError("invalid_request", f"artifact {artifact.name!r}: its request is not the id of one")


def _over(row: ArtifactRow) -> bool:
    return row.error is not None or row.stored_at is not None


async def _note(session: AsyncSession, node: NodeRow, offer: Offer, now: datetime) -> ArtifactRow | None:
    """Note a trace or a record of gradients. Returns None where the job has too many of them: the last one that is noted says so."""
    artifact = offer.artifact
    files, stored = await rows.held_by_job(session, offer.job_id)
    if files >= MAX_JOB_ARTIFACTS:
        return None
    error = artifact.error and artifact.error[:ERROR_CHARACTERS].replace("\0", "\ufffd")
    if files == MAX_JOB_ARTIFACTS - 1:
        error = f"with it the job has {MAX_JOB_ARTIFACTS:,} traces and records of gradients, which is the limit; further ones are dropped"
    error = error or _refusal(artifact.bytes, stored)
    row = ArtifactRow(
        job_id=offer.job_id,
        generation=offer.generation,
        rank=offer.rank,
        node_id=node.id,
        name=artifact.name,
        kind=artifact.kind,
        request_id=artifact.request,
        first_step=artifact.first_step,
        last_step=artifact.last_step,
        bytes=0 if error else artifact.bytes,
        sha256=artifact.sha256,
        error=error,
        created_at=now,
    )
    session.add(row)
    await session.flush()
    if error:
        await _event(session, node, row, "job.trace_failed", error, "there is no trace of", now)
    await node_lifecycle.bump_desired_revision(session, node.id)  # the rank need not be asked again
    return row


def _refusal(size: int, stored: int) -> str | None:
    """The reason why a file of `size` bytes is not taken, beside the `stored` ones of its job."""
    if size > MAX_ARTIFACT_BYTES:
        return f"it has {size:,} bytes; the limit is {MAX_ARTIFACT_BYTES:,}: ask for fewer steps"
    if stored + size > MAX_JOB_BYTES:
        return f"with its {size:,} bytes the job would have {stored + size:,}; the limit is {MAX_JOB_BYTES:,}: delete older ones"
    return None


async def store_chunk(services: Services, node: NodeRow, artifact_id: str, number: int, data: bytes) -> Received:
    """Store the next chunk; any other is answered with the number of the next one."""
    async with services.control.read() as session:
        row = await rows.get(session, artifact_id)
    if row is None or row.node_id != node.id:
        raise not_found("artifact", artifact_id)
    if _over(row):
        return Received(id=row.id, next_chunk=None)
    total = -(-row.bytes // wire.CHUNK_BYTES)
    async with services.metrics.write() as points:
        here = await rows.chunks(points, row.id)
        if number == here and len(data) == min(wire.CHUNK_BYTES, row.bytes - number * wire.CHUNK_BYTES):
            await rows.add_chunk(points, row.id, number, data)
            here += 1
    async with services.control.read() as session:
        if await rows.get(session, row.id) is None:  # it was removed meanwhile, and nothing would find this chunk
            await drop_contents(services, row.id)
            raise not_found("artifact", artifact_id)
    if here < total:
        return Received(id=row.id, next_chunk=here)
    if not await _complete(services, node, row.id):
        raise not_found("artifact", artifact_id)  # its agent offers it anew
    return Received(id=row.id, next_chunk=None)


async def _complete(services: Services, node: NodeRow, artifact_id: str) -> bool:
    """Complete a file with its last chunk. One with a wrong hash is thrown away: its disk has changed it, or its program. Returns whether
    nothing more is wanted of it."""
    digest = hashlib.sha256()
    async for data in contents(services, artifact_id):
        digest.update(data)
    await services.metrics.make_durable()
    now = services.now()
    async with services.write() as session:
        row = await rows.get_locked(session, artifact_id)
        if row is None or _over(row):
            return row is not None
        useless, again = [row.id], False
        if digest.hexdigest() == row.sha256:
            useless = await mark_stored(session, row, now)
            await _event(session, node, row, "job.traced", f"{row.bytes:,} bytes", "a trace of", now)
        elif row.kind == FILE:  # it was written to while it was read: its agent will see that, and offer it again
            await session.delete(row)
            again = True
        else:
            row.error, row.bytes = f"what arrived has the SHA-256 {digest.hexdigest()}, not {row.sha256}: ask again", 0
            await _event(session, node, row, "job.trace_failed", row.error, "there is no trace of", now)
    for each in useless:
        await drop_contents(services, each)
    return not again


async def mark_stored(session: AsyncSession, row: ArtifactRow, now: datetime) -> list[str]:
    """Mark a file as stored. Of a path the newest version stays. Returns the ids of the other ones, whose contents can be deleted."""
    if row.path is None:
        row.stored_at = now
        return []
    return await mark_version_stored(session, row, await file_rows.versions(session, row.job_id, [row.path], lock=True), now)


async def mark_version_stored(session: AsyncSession, row: ArtifactRow, known: Sequence[ArtifactRow], now: datetime) -> list[str]:
    """Mark a file as stored among the `known` versions of its path, as `mark_stored` does."""
    others = [each for each in known if each.stored_at is not None and each.id != row.id]
    versions = await FileVersions.of_job(session, row.job_id, row.rank)
    row.stored_at = now
    # one agent sends the versions of one folder in their order, whatever the node's clock says
    useless = [row] if versions.is_outdated(row, others) else others
    for each in useless:
        if each.held:
            each.kind, each.folder = KEPT_FOR_A_MODEL, None
        else:
            await session.delete(each)
    return [each.id for each in useless if not each.held]


async def _event(session: AsyncSession, node: NodeRow, row: ArtifactRow, type: str, cause: str, words: str, now: datetime) -> None:
    """Record what became of a trace. Records of gradients, of which there may be thousands, are told of by `history/gradients.py`."""
    if row.kind != "trace":
        return
    await events.record(
        session,
        type=type,
        actor=node_actor(node),
        cause=cause,
        message=f"{words} steps {row.first_step} to {row.last_step} of rank {row.rank}",
        job_id=row.job_id,
        node_id=node.id,
        generation=row.generation,
        data={"artifact_id": row.id, "rank": row.rank, "bytes": row.bytes},
        time=now,
    )


# --- to clients


async def contents(services: Services, artifact_id: str) -> AsyncIterator[bytes]:
    """The contents chunk by chunk, each in a session of its own: a slow client keeps no transaction open."""
    number = 0
    while True:
        async with services.metrics.read() as points:
            data = await rows.chunk(points, artifact_id, number)
        if data is None:
            return
        yield data
        number += 1


def require_ready(row: ArtifactRow) -> None:
    if row.error is not None:
        raise ProblemError("artifact_not_ready", f"there is no file: {row.error}")
    if row.stored_at is None:
        raise ProblemError("artifact_not_ready", f"{row.name} is still arriving from its node; ask again in a moment")


async def remove(services: Services, row: ArtifactRow, actor: Actor | None = None) -> None:
    """Remove a file, its row first: the storage loop finds contents that an interrupted removal has left. Raises model_in_use where a model is
    made of it. `actor`: the user who asked for it, whom the history names."""
    async with services.write() as session:
        found = await rows.get_locked(session, row.id)
        if found is None:
            return
        if found.held:
            holders = ", ".join(await registry.holders(session, artifact_id=found.id))
            raise ProblemError("model_in_use", f"{found.path} is {holders} in the registry of models: delete that version first")
        await session.delete(found)
        if actor is not None:
            await _record_removal(session, found, actor, services.now())
    await drop_contents(services, row.id)


async def _record_removal(session: AsyncSession, row: ArtifactRow, actor: Actor, now: datetime) -> None:
    what = row.path or f"{row.name} of rank {row.rank}"
    await events.record(
        session,
        type="job.file_deleted",
        actor=actor,
        cause=f"{actor.name} asked for it",
        message=f"{what} ({row.bytes:,} bytes) was deleted",
        job_id=row.job_id,
        generation=row.generation,
        data={"name": row.path or row.name, "rank": row.rank, "bytes": row.bytes},
        time=now,
    )


async def drop_contents(services: Services, artifact_id: str) -> None:
    """Delete the last chunks first, a few in a transaction: an interrupted removal leaves the beginning of the file."""
    while True:
        async with services.metrics.write() as points:
            if not await rows.drop_last_chunks(points, artifact_id, CHUNKS_DROPPED_AT_ONCE):
                return
