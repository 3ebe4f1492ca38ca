"""Logged images and histograms as records of TensorBoard event files. Tables have no form there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import groupby

from paceline.api.core.context import Services
from paceline.api.services.history import media
from paceline.db.repositories.media import LoggedObject
from paceline.monitoring import tensorboard
from paceline.monitoring.media import DamagedMediaError, MediaDocument, MediaKind, image_place, unpack


class MediaRecords:
    """The records of a job's objects, rank by rank. `standing`: the objects that count."""

    def __init__(self, services: Services, standing: Sequence[LoggedObject]) -> None:
        self._services = services
        self._objects = [each for each in standing if each.kind != "table"]

    @property
    def ranks(self) -> list[int]:
        """The ranks that have logged an image or a histogram."""
        return sorted({each.rank for each in self._objects})

    async def of_rank(self, rank: int, first_step: int) -> AsyncIterator[bytes]:
        """Yield a record for each step from `first_step` on, in order."""
        mine = [each for each in self._objects if each.rank == rank and each.step >= first_step]
        for step, group in groupby(sorted(mine, key=lambda each: each.step), key=lambda each: each.step):
            objects = list(group)
            contents = [(each.key, media.kind_of(each), await media.content(self._services, each)) for each in objects]
            yield await asyncio.to_thread(_record, step, objects[-1].created_at.timestamp(), contents)


def _record(step: int, time: float, contents: Sequence[tuple[str, MediaKind, bytes]]) -> bytes:
    return tensorboard.event(step, time, [value for key, kind, content in contents for value in values_of(key, kind, content)])


def values_of(key: str, kind: MediaKind, content: bytes) -> list[bytes]:
    """Return an object as values of an event. A list of images has a tag for each; what cannot be read has none."""
    try:
        document = unpack(content, kind).document
    except DamagedMediaError:
        return []
    found = document.histogram
    if found is not None and found.counts:
        return [tensorboard.histogram(key, found.edges, found.counts, found.mean or 0.0, found.std or 0.0)]
    return _images(key, document, content)


def _images(key: str, document: MediaDocument, content: bytes) -> list[bytes]:
    values = []
    for number, image in enumerate(document.images):
        place = image_place(content, number)
        assert place is not None, "the document has this image"
        tag = key if len(document.images) == 1 else f"{key}/{number}"
        values.append(tensorboard.image(tag, image.width, image.height, content[place[1] : place[1] + image.bytes]))
    return values
