"""Files of $PACELINE_ARTIFACTS as agents offer them: noted, stored at once where they are small, refused where a limit is passed.

A refusal concerns one file. The first one for each limit is an event of the job and stands beside its files; later ones are not told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import node_actor
from paceline.api.errors import ProblemError, not_found
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.artifacts.file_versions import FileVersions
from paceline.api.services.lifecycle import events
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import aged, artifact_files, rank_marks
from paceline.db.repositories import artifacts as rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories.artifact_files import FILE, LIMIT, JobFiles
from paceline.monitoring import artifact_files as wire
from paceline.monitoring.artifact_files import BATCH_FILES, FileReceived, FilesOffer, FilesReceived, OfferedFile

OUTDATED = FileReceived(
    refused="a process that the job has had since has left a later version of it; this one stays on its node for some days"
)
DELETED = FileReceived(refused="the data of its job was deleted")


async def accept(services: Services, node: NodeRow, offer: FilesOffer) -> FilesReceived:
    """Note offered files, each version once, and store those that came with their content. Raises not_found for a rank that the node does
    not hold."""
    check(offer)
    noted: list[tuple[OfferedFile, ArtifactRow]] = []
    async with services.write() as session:
        place = (offer.job_id, offer.generation, offer.rank)
        if place not in await rank_marks.ranks_of(session, node.id, {offer.job_id}):
            raise not_found("rank of this node", f"{offer.rank} of generation {offer.generation} of job {offer.job_id}")
        if await aged.removal(session, offer.job_id) is not None:
            return FilesReceived(files=(DELETED,) * len(offer.files))
        answers = await _note_all(session, node, offer, services.now(), noted)
    await _store(services, noted)
    async with services.metrics.read() as points:
        for file, row in noted:
            if file.content is None and file.bytes:
                answers[file.version] = FileReceived(id=row.id, next_chunk=await rows.chunks(points, row.id))
    return FilesReceived(files=tuple(answers[file.version] for file in offer.files))


def check(offer: FilesOffer) -> None:
    """Refuse what no agent of ours sends."""
    if not 0 < len(offer.files) <= BATCH_FILES:
        raise ProblemError("invalid_request", f"{len(offer.files)} files in one offer; from 1 to {BATCH_FILES} are taken")
    for file in offer.files:
        fits = file.bytes >= 0 and 0 <= file.changed_ns < 1 << 63 and wire.is_sha256(file.sha256)
        whole = file.content is None or (len(file.content) == file.bytes and hashlib.sha256(file.content).hexdigest() == file.sha256)
        if not fits or not whole:
            raise ProblemError("invalid_request", f"file {file.path!r} of {file.bytes} bytes: size, time, SHA-256 and content do not fit")


async def _note_all(
    session: AsyncSession, node: NodeRow, offer: FilesOffer, now: datetime, noted: list[tuple[OfferedFile, ArtifactRow]]
) -> dict[str, FileReceived]:
    """Note each file and add those whose content is wanted to `noted`. Returns the answers by version."""
    paths = {file.path for file in offer.files}
    known: dict[str, list[ArtifactRow]] = {path: [] for path in paths}
    for row in await artifact_files.versions(session, offer.job_id, paths):
        known[row.path or ""].append(row)
    versions = await FileVersions.of_job(session, offer.job_id, offer.rank)
    ahead_ns = int(await node_rows.clock_skew(session, node.id) * 1e9)
    stored = await artifact_files.totals_of_job(session, offer.job_id, paths)
    answers: dict[str, FileReceived] = {}
    for file in offer.files:
        row = _row_of(node, offer, file, ahead_ns, now)
        wanted, answer = await _note(session, node, file, row, known[file.path], versions, stored)
        answers[file.version] = answer
        if wanted is not None:
            known[file.path].append(wanted)
            noted.append((file, wanted))
        if answer.refused is None:
            stored = JobFiles(stored.files + 1, stored.bytes + file.bytes)
    return answers


def _row_of(node: NodeRow, offer: FilesOffer, file: OfferedFile, ahead_ns: int, now: datetime) -> ArtifactRow:
    """The row of an offered file; its time by the coordinator's clock, which the node's is so many nanoseconds ahead of."""
    return ArtifactRow(
        job_id=offer.job_id,
        generation=offer.generation,
        rank=offer.rank,
        node_id=node.id,
        name=file.version,
        kind=FILE,
        first_step=0,
        last_step=0,
        bytes=file.bytes,
        sha256=file.sha256,
        created_at=now,
        path=file.path,
        folder=file.path.rpartition("/")[0],
        changed_ns=max(0, file.changed_ns - ahead_ns),
    )


async def _note(
    session: AsyncSession,
    node: NodeRow,
    file: OfferedFile,
    row: ArtifactRow,
    known: Sequence[ArtifactRow],
    versions: FileVersions,
    stored: JobFiles,
) -> tuple[ArtifactRow | None, FileReceived]:
    """Note one file, as the row of it says. Returns that row where its content is wanted, and the answer."""
    same = next((each for each in known if each.name == file.version), None)
    if same is not None:
        return (None if same.stored_at else same), FileReceived(id=same.id)
    if versions.is_outdated(row, known):
        return None, OUTDATED
    refused = refusal(file, stored)
    if refused is not None:
        await _tell(session, node, row.job_id, file, refused, row.created_at)
        return None, FileReceived(refused=refused[1])
    for each in known:
        if each.stored_at is None and (each.generation, each.rank) == (row.generation, row.rank):
            await session.delete(each)  # the file was changed before all of it was here
    session.add(row)
    await session.flush()
    return row, FileReceived(id=row.id)


def refusal(file: OfferedFile, stored: JobFiles) -> tuple[str, str] | None:
    """The limit that a file would pass, by name and in a sentence; None: it is taken. `stored`: the job's other files."""
    if (wrong := wire.path_refusal(file.path)) is not None:
        return "path of a file", wrong
    if file.bytes > wire.MAX_FILE_BYTES:
        return (
            "bytes of a file",
            f"it has {file.bytes:,} bytes; the limit of a file is {wire.MAX_FILE_BYTES:,}: split it, or leave it elsewhere",
        )
    if stored.bytes + file.bytes > wire.MAX_JOB_FILE_BYTES:
        total = stored.bytes + file.bytes
        return "bytes of a job", f"with it the job would have {total:,} bytes; the limit is {wire.MAX_JOB_FILE_BYTES:,}: delete some files"
    if stored.files + 1 > wire.MAX_JOB_FILES:
        return "files of a job", f"the job has {stored.files:,} files, which is the limit: pack small files into an archive"
    return None


async def _tell(session: AsyncSession, node: NodeRow, job_id: str, file: OfferedFile, refused: tuple[str, str], now: datetime) -> None:
    """Record that a limit was passed, the first time that it is in this job."""
    limit, sentence = refused
    if await rows.by_name(session, job_id, 0, 0, limit) is not None:
        return
    message = f"{wire.printable(file.path)[:200]} is not kept: {sentence}"
    session.add(
        ArtifactRow(
            job_id=job_id,
            generation=0,
            rank=0,
            node_id=node.id,
            name=limit,
            kind=LIMIT,
            first_step=0,
            last_step=0,
            bytes=0,
            sha256="",
            error=message,
            created_at=now,
        )
    )
    await events.record(
        session,
        type="job.artifact_refused",
        actor=node_actor(node),
        cause=limit,
        message=f"{message}. Further files beyond this limit are not told",
        job_id=job_id,
        node_id=node.id,
        data={"path": wire.printable(file.path), "bytes": file.bytes, "limit": limit},
        time=now,
    )


async def _store(services: Services, noted: Sequence[tuple[OfferedFile, ArtifactRow]]) -> None:
    """Store the files whose content is here, and drop the versions that they replace."""
    whole = [(file, row) for file, row in noted if file.content is not None or not file.bytes]
    if not whole:
        return
    async with services.metrics.write() as points:
        for file, row in whole:
            if file.content:
                await rows.add_chunk(points, row.id, 0, file.content)
    await services.metrics.make_durable()
    useless: list[str] = []
    async with services.write() as session:
        known = await artifact_files.versions(session, whole[0][1].job_id, {file.path for file, _ in whole}, lock=True)
        by_id = {row.id: row for row in known}
        for file, row in whole:
            found = by_id.get(row.id)
            if found is None:
                useless.append(row.id)
            elif found.stored_at is None:
                useless += await stored_artifacts.mark_version_stored(
                    session, found, [each for each in known if each.path == file.path], services.now()
                )
    for artifact_id in useless:
        await stored_artifacts.drop_contents(services, artifact_id)
