"""Images, histograms and tables that ranks have logged, as they stand: a step done again replaces what it logged before."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

import msgspec

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.media import (
    HistogramAtStep,
    JobMedia,
    LoggedHistogram,
    LoggedImage,
    LoggedTable,
    MediaAtStep,
    MediaEntry,
    MediaHistograms,
    MediaKey,
    MediaObject,
    MediaStep,
)
from paceline.api.services.history import steps
from paceline.cluster.history.lineage import Line
from paceline.db.repositories import artifacts as artifact_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import media as rows
from paceline.db.repositories.media import LoggedObject
from paceline.monitoring.artifacts import CHUNK_BYTES
from paceline.monitoring.media import (
    MAX_DOCUMENT_BYTES,
    DamagedMediaError,
    MediaDocument,
    MediaKind,
    StoredHistogram,
    StoredImage,
    image_place,
    unpack,
)

#: How many ranks' objects are read for one answer, and how many bytes of documents, before they were compressed.
MOST_RANKS, MOST_BYTES = 16, 64 << 20
MOST_HISTOGRAMS = 200


async def standing(services: Services, job_id: str, key: str | None = None, kind: MediaKind | None = None) -> list[LoggedObject]:
    """The objects of a job that count, in order of keys, steps and ranks."""
    async with services.control.read() as session:
        found = await rows.of_job(session, job_id, key)
        generations = await job_rows.generations_of(session, job_id)
    if not found:
        return []
    async with services.metrics.read() as points:
        lines = await steps.lines_of(points, job_id, generations)
    return as_they_stand((each for each in found if kind is None or each.kind == kind), lines)


def as_they_stand(objects: Iterable[LoggedObject], lines: Sequence[Line]) -> list[LoggedObject]:
    """Return the objects of each step's newest generation that has any, and of each rank the one that came last.

    What an earlier generation logged beyond the step from which a later one went on is left out: that work was lost. `objects` are in the order of
    their arrival.
    """
    newest: dict[tuple[str, str, int], int] = {}
    counting: dict[tuple[str, str, int, int, int], LoggedObject] = {}
    for each in objects:
        if any(line.generation > each.generation and line.first <= each.step for line in lines):
            continue
        place = (each.key, each.kind, each.step)
        newest[place] = max(newest.get(place, 0), each.generation)
        counting[(*place, each.generation, each.rank)] = each
    kept = [each for each in counting.values() if each.generation == newest[(each.key, each.kind, each.step)]]
    return sorted(kept, key=lambda each: (each.key, each.kind, each.step, each.rank))


async def of_job(services: Services, job_id: str, key: str | None) -> JobMedia:
    """Every key, with its steps."""
    found = await standing(services, job_id, key)
    keys = []
    for (name, _), group in groupby(found, key=lambda each: (each.key, each.kind)):
        mine = list(group)
        keys.append(
            MediaKey(
                key=name,
                kind=kind_of(mine[0]),
                steps=list(dict.fromkeys(each.step for each in mine)),
                ranks=sorted({each.rank for each in mine}),
                bytes=sum(each.bytes for each in mine),
            )
        )
    return JobMedia(job_id=job_id, keys=keys)


def by_step(found: Iterable[LoggedObject]) -> list[MediaStep]:
    """The objects of one key by step."""
    steps_of: dict[int, list[LoggedObject]] = defaultdict(list)
    for each in found:
        steps_of[each.step].append(each)
    return [
        MediaStep(
            step=step,
            generation=mine[0].generation,
            objects=[
                MediaEntry(id=each.id, rank=each.rank, count=each.items, bytes=each.bytes, created_at=each.created_at) for each in mine
            ],
        )
        for step, mine in sorted(steps_of.items())
    ]


async def at_step(
    services: Services, job_id: str, key: str, kind: MediaKind | None, step: int | None, ranks: Collection[int] | None
) -> MediaAtStep:
    """Return what `ranks`, or all, have logged under a key at a step, or at the newest one. Raises not_found, and a problem for too many ranks."""
    found = await of_key(services, job_id, key, kind)
    step = found[-1].step if step is None else step
    mine = [each for each in found if each.step == step]
    if not mine:
        nearest = min((each.step for each in found), key=lambda known: abs(known - step))
        raise ProblemError("not_found", f"{key} was not logged at step {step}; the nearest step that has it is {nearest}")
    mine = [each for each in mine if each.kind == mine[-1].kind]
    chosen = [each for each in mine if ranks is None or each.rank in ranks]
    if len(chosen) > MOST_RANKS:
        raise ProblemError(
            "invalid_parameter", f"{len(chosen)} ranks have logged {key}; at most {MOST_RANKS} are read at once: name some with rank=0,1"
        )
    async with services.unpacking.turn():
        return MediaAtStep(
            job_id=job_id,
            key=key,
            kind=kind_of(mine[0]),
            step=step,
            generation=mine[0].generation,
            ranks=[each.rank for each in mine],
            objects=await _objects(services, chosen),
        )


async def of_key(services: Services, job_id: str, key: str, kind: MediaKind | None) -> list[LoggedObject]:
    """The objects of a key that count. Raises not_found."""
    found = await standing(services, job_id, key, kind)
    if not found:
        raise ProblemError("not_found", f"{kind or 'nothing'} is stored under {key!r}; ask for the job's media to see the keys")
    return found


async def _objects(services: Services, chosen: Sequence[LoggedObject]) -> list[MediaObject]:
    objects, unpacked = [], 0
    for each in chosen:
        if unpacked > MOST_BYTES:
            objects.append(
                _described(each, MediaDocument(), f"it is too large to be read with those of other ranks: ask for rank {each.rank} alone")
            )
            continue
        try:
            document, size, _ = await asyncio.to_thread(unpack, await _beginning(services, each), kind_of(each))
        except DamagedMediaError as error:
            objects.append(_described(each, MediaDocument(), f"the object cannot be read: {error}"))
            continue
        objects.append(_described(each, document, None))
        unpacked += size
    return objects


def _described(each: LoggedObject, document: MediaDocument, error: str | None) -> MediaObject:
    table = document.table
    return MediaObject(
        id=each.id,
        rank=each.rank,
        images=[
            LoggedImage(number=number, width=image.width, height=image.height, caption=image.caption, format=image.format)
            for number, image in enumerate(document.images)
        ],
        histogram=None if document.histogram is None else _histogram(document.histogram),
        table=None
        if table is None
        else LoggedTable(columns=list(table.columns), rows=[list(row) for row in table.rows], total_rows=table.total_rows),
        error=error,
    )


async def content(services: Services, each: LoggedObject) -> bytes:
    """An object's whole content."""
    return await _piece(services, each.id, 0, each.bytes)


async def _beginning(services: Services, each: LoggedObject) -> bytes:
    """The part of an object's content that has its document: images have it in their first chunk."""
    return await _piece(services, each.id, 0, min(each.bytes, CHUNK_BYTES) if each.kind == "images" else each.bytes)


async def _piece(services: Services, artifact_id: str, start: int, size: int) -> bytes:
    """A part of an object's content, from the chunks that have it."""
    first, last = start // CHUNK_BYTES, (start + size - 1) // CHUNK_BYTES
    async with services.metrics.read() as points:
        data = [await artifact_rows.chunk(points, artifact_id, number) or b"" for number in range(first, last + 1)]
    at = start - first * CHUNK_BYTES
    return b"".join(data)[at : at + size]


async def image(services: Services, job_id: str, artifact_id: str, number: int) -> tuple[StoredImage, bytes]:
    """Return one image and its file. Raises not_found, and a problem where the object has no such file."""
    async with services.control.read() as session:
        row = await artifact_rows.get(session, artifact_id)
    if row is None or row.job_id != job_id or row.media_kind != "images" or row.stored_at is None:
        raise not_found("image", f"{artifact_id}/{number}")
    try:
        place = image_place(await _piece(services, row.id, 0, min(row.bytes, CHUNK_BYTES)), number)
    except DamagedMediaError as error:
        raise ProblemError("artifact_not_ready", f"the image cannot be read: {error}") from error
    if place is None:
        raise not_found("image", f"{artifact_id}/{number}")
    stored, start = place
    if start + stored.bytes > row.bytes:
        raise ProblemError(
            "artifact_not_ready", f"the image cannot be read: it is said to end behind the {row.bytes:,} bytes of its object"
        )
    return stored, await _piece(services, row.id, start, stored.bytes)


async def histograms(services: Services, job_id: str, key: str, rank: int, first: int, last: int | None, most: int) -> MediaHistograms:
    """A rank's histograms over steps, at most `most`, the first and the last among them. Raises not_found."""
    found = await of_key(services, job_id, key, "histogram")
    mine = [each for each in found if each.rank == rank and first <= each.step and (last is None or each.step <= last)]
    mine = [each for each in mine if each.bytes <= MAX_DOCUMENT_BYTES["histogram"]]  # larger ones are none
    chosen = evenly(mine, most)
    async with services.metrics.read() as points:
        contents = await rows.contents(points, [each.id for each in chosen])
    return MediaHistograms(job_id=job_id, key=key, rank=rank, steps=len(mine), items=await asyncio.to_thread(_histograms, chosen, contents))


def evenly(objects: Sequence[LoggedObject], most: int) -> list[LoggedObject]:
    """At most `most` of the objects, as evenly spread as their order allows; the first and the last stay."""
    if len(objects) <= most:
        return list(objects)
    if most == 1:
        return [objects[-1]]
    return [objects[round(number * (len(objects) - 1) / (most - 1))] for number in range(most)]


def _histograms(chosen: Sequence[LoggedObject], contents: dict[str, bytes]) -> list[HistogramAtStep]:
    """The histograms that can be read."""
    items = []
    for each in chosen:
        try:
            stored = unpack(contents.get(each.id, b""), "histogram").document.histogram
        except DamagedMediaError:
            continue  # `at_step` tells why
        if stored is not None:
            items.append(HistogramAtStep(step=each.step, histogram=_histogram(stored)))
    return items


def _histogram(stored: StoredHistogram) -> LoggedHistogram:
    return LoggedHistogram.model_validate(msgspec.structs.asdict(stored))


def kind_of(each: LoggedObject) -> MediaKind:
    return "images" if each.kind == "images" else "table" if each.kind == "table" else "histogram"
