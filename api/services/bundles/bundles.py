"""Bundles of code: offered by clients, sent in chunks, verified, served to agents and to people, and deleted when no job and no experiment that goes on
names them.

The row is in the control database, the contents in the metrics database: a row may be there before its contents, never after.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.bundles import Bundle, BundleChanges, BundleOffer
from paceline.bundles.archive import CHUNK_BYTES, verify
from paceline.bundles.changes import difference, fingerprints
from paceline.bundles.errors import DamagedBundleError, PathTooLongError
from paceline.db.models.bundles import BundleRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import bundles as rows
from paceline.training.spec.job import JobSpec

#: How long a bundle stays that nothing names, since it was offered last; and one that never arrived in full.
UNUSED, STUCK = timedelta(days=1), timedelta(hours=1)
#: A client that sends a bundle is heard from so often, as each chunk comes within a minute; and how often that is noted.
SENDING, NOTED = timedelta(minutes=2), timedelta(seconds=20)
#: In one pass of the loop, and in one transaction.
MOST_AT_ONCE, CHUNKS_DROPPED_AT_ONCE = 20, 8
#: How much of an archive is kept in memory while it is verified; the rest is in a file.
MEMORY_BYTES = 8 << 20
#: Paths of each list of an answer that tells how two bundles differ.
MOST_TOLD = 200


async def find(session: AsyncSession, digest: str) -> BundleRow:
    row = await rows.get(session, digest)
    if row is None:
        raise not_found("bundle", digest)
    return row


async def describe(services: Services, row: BundleRow) -> Bundle:
    next_chunk: int | None = None
    if row.stored_at is None:
        async with services.metrics.read() as points:
            next_chunk = await rows.chunks(points, row.digest)
    return Bundle(
        digest=row.digest,
        bytes=row.bytes,
        unpacked_bytes=row.unpacked_bytes,
        files=row.files,
        state="arriving" if row.stored_at is None else "ready",
        next_chunk=next_chunk,
        created_by=row.created_by,
        created_at=row.created_at,
    )


async def require(session: AsyncSession, spec: JobSpec) -> None:
    """Raise a ProblemError unless the bundle that the spec names, if any, is stored. It stays from now on, if the transaction commits."""
    if spec.environment.code is None:
        return
    digest = spec.environment.code.bundle
    row = await rows.get_locked(session, digest)
    if row is None or row.stored_at is None:
        what = "is not stored here" if row is None else "has not arrived in full"
        raise ProblemError(
            "no_bundle",
            f"environment.code.bundle={digest} {what}; send the folder with `paceline submit --workdir FOLDER`, or name another",
        )


# --- from clients


async def offer(services: Services, digest: str, offered: BundleOffer, by: str) -> Bundle:
    """Note an offered bundle, or that it is wanted again. Harmless again. One that was stored, and of which a power cut has taken chunks, is
    asked for again. One that another zstd has packed takes the place of one that nobody sends any more."""
    now = services.now()
    async with services.write(request=True) as session:
        row = await rows.get_locked(session, digest)
        if row is None:
            facts = offered.model_dump()
            await rows.add(session, BundleRow(digest=digest, created_by=by, created_at=now, offered_at=now, stored_at=None, **facts))
            row = await rows.get_locked(session, digest)
            assert row is not None
        sent_at, row.offered_at = row.offered_at, now
        if row.stored_at is not None and not await _is_whole(services, row):
            row.stored_at = None
        is_another = row.stored_at is None and row.bytes != offered.bytes
        if is_another and now - sent_at < SENDING:
            raise ProblemError(
                "already_exists",
                f"bundle {digest} is arriving with {row.bytes:,} bytes, not {offered.bytes:,}: another client sends it, packed by another zstd; try again in two minutes",
            )
        if is_another:
            row.bytes, row.unpacked_bytes, row.files = offered.bytes, offered.unpacked_bytes, offered.files
    if is_another:
        await _drop_chunks(services, digest)
    return await describe(services, row)


async def _is_whole(services: Services, row: BundleRow) -> bool:
    async with services.metrics.read() as points:
        return await rows.chunks(points, row.digest) * CHUNK_BYTES >= row.bytes


async def store_chunk(services: Services, digest: str, number: int, data: bytes) -> Bundle:
    """Store the next chunk; any other is answered with the number of the next one."""
    async with services.control.read() as session:
        row = await find(session, digest)
    if row.stored_at is not None:
        return await describe(services, row)
    if services.now() - row.offered_at >= NOTED:
        await _note_sender(services, digest)
    async with services.metrics.write() as points:
        here = await rows.chunks(points, digest)
        if number == here and len(data) == min(CHUNK_BYTES, row.bytes - number * CHUNK_BYTES):
            await rows.add_chunk(points, digest, number, data)
            here += 1
    if here * CHUNK_BYTES >= row.bytes:
        await _complete(services, row)
    async with services.control.read() as session:
        return await describe(services, await find(session, digest))


async def _note_sender(services: Services, digest: str) -> None:
    async with services.write(request=True) as session:
        row = await rows.get_locked(session, digest)
        if row is not None:
            row.offered_at = services.now()


async def _complete(services: Services, row: BundleRow) -> None:
    """Complete a bundle with its last chunk. One with another digest is thrown away: nobody may put code under the name of other code. So is
    one that no node could unpack, whose jobs would fail after their start."""
    with tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES) as packed:
        async for data in contents(services, row.digest):
            packed.write(data)
        packed.seek(0)
        try:
            unpacked_bytes, damage = await asyncio.to_thread(verify, packed, row.digest), None
        except PathTooLongError as error:
            unpacked_bytes, damage = 0, f"no node could unpack the bundle {row.digest}: {error}"
        except DamagedBundleError as error:
            unpacked_bytes, damage = 0, f"what arrived is not the bundle {row.digest}: {error}; send it again"
    if damage is not None:
        await remove(services, row.digest)
        raise ProblemError("invalid_request", damage)
    await services.metrics.make_durable()
    async with services.write(request=True) as session:
        stored = await rows.get_locked(session, row.digest)
        if stored is not None and stored.stored_at is None:
            stored.stored_at, stored.unpacked_bytes = services.now(), unpacked_bytes


# --- to clients and agents


async def contents(services: Services, digest: str) -> AsyncIterator[bytes]:
    """The contents chunk by chunk, each in a session of its own: a slow client keeps no transaction open."""
    number = 0
    while True:
        async with services.metrics.read() as points:
            data = await rows.chunk(points, digest, number)
        if data is None:
            return
        yield data
        number += 1


async def find_ready(session: AsyncSession, digest: str) -> BundleRow:
    row = await find(session, digest)
    if row.stored_at is None:
        raise ProblemError("artifact_not_ready", f"bundle {digest} is still arriving; ask again in a moment")
    return row


async def find_for_node(session: AsyncSession, node: NodeRow, digest: str) -> BundleRow:
    """The code of a job that has ranks on a node. To its credential all other bundles are not there."""
    if not await rows.ran_on(session, node.id, digest):
        raise not_found("bundle of a job on this node", digest)
    return await find_ready(session, digest)


async def changes(services: Services, since: str, digest: str) -> BundleChanges:
    """The files by which the bundle `digest` differs from the bundle `since`."""
    async with services.control.read() as session:
        for each in (since, digest):
            await find_ready(session, each)
    found = difference(await _fingerprints(services, since), await _fingerprints(services, digest))
    lists = (found.added, found.removed, found.changed)
    added, removed, changed = (list(paths[:MOST_TOLD]) for paths in lists)
    return BundleChanges(since=since, added=added, removed=removed, changed=changed, count=sum(map(len, lists)))


async def _fingerprints(services: Services, digest: str) -> dict[str, bytes]:
    with tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES) as packed:
        async for data in contents(services, digest):
            packed.write(data)
        return await asyncio.to_thread(fingerprints, packed)


# --- housekeeping


async def drop_unused(services: Services, now: datetime) -> bool:
    """Delete the bundles that no job and no experiment that goes on names, a few at a time. Returns whether there may be more."""
    async with services.control.read() as session:
        digests = await rows.unused(session, now - UNUSED, now - STUCK, MOST_AT_ONCE)
    for digest in digests:
        await remove(services, digest, now - STUCK)
    return len(digests) == MOST_AT_ONCE


async def remove(services: Services, digest: str, offered_before: datetime | None = None) -> None:
    """Delete a bundle unless a job or an experiment that goes on names it, or it has been offered since `offered_before`: who offers it while its contents are being deleted
    sends what is gone again. The row goes last: an interrupted removal leaves one that is arriving, to be removed again."""

    def is_wanted(row: BundleRow | None) -> bool:
        return row is not None and offered_before is not None and row.offered_at >= offered_before

    async with services.write() as session:
        row = await rows.get_locked(session, digest)
        if row is None or is_wanted(row) or await rows.is_named(session, digest):
            return
        row.stored_at = None
    if not await _drop_chunks(services, digest, is_wanted):
        return
    async with services.write() as session:
        row = await rows.get_locked(session, digest)
        if row is not None and row.stored_at is None and not is_wanted(row):
            await session.delete(row)


async def _drop_chunks(services: Services, digest: str, is_wanted: Callable[[BundleRow | None], bool] = lambda _: False) -> bool:
    """Delete the contents of a bundle, a few chunks at a time. Returns False once `is_wanted` says so of its row; the rest stays then."""
    while True:
        async with services.metrics.write() as points:
            if not await rows.drop_last_chunks(points, digest, CHUNKS_DROPPED_AT_ONCE):
                return True
        async with services.control.read() as session:
            if is_wanted(await rows.get(session, digest)):
                return False
