"""Stores an upload that the database has refused: batch by batch, and such a batch in halves, until the record to blame is alone.

That record is passed over like any other that cannot be stored, so it holds up neither its rank nor another.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from paceline.api.services.ingest.screening import SHOWN_CHARACTERS, Unreadable
from paceline.api.services.ingest.selection import RefusedRecord, StoredBatches
from paceline.db.errors import DatabaseError
from paceline.db.repositories.ingest import Stream
from paceline.monitoring.points import RankBatch

logger = logging.getLogger(__name__)
#: Transactions for one rank's news. One bad record of 5,000 takes 26; where many are bad, the rest waits for the next upload.
MAX_ATTEMPTS = 60
Commit = Callable[[Sequence[RankBatch]], Awaitable[StoredBatches]]


async def store(batches: Sequence[RankBatch], commit: Commit) -> StoredBatches:
    """Store everything in `batches` that can be stored. Raises DatabaseError where the database is away."""
    found: list[StoredBatches] = []
    for batch in batches:
        found += await _Batch(commit).store(batch)
    return together(found)


class _Batch:
    """The attempts to store one rank's records."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._attempts = 0
        self._found: list[StoredBatches] = []

    async def store(self, batch: RankBatch) -> list[StoredBatches]:
        """Store the batch, or at least its marks as they are, so that the agent does not think that they were forgotten."""
        self._found.append(await self._commit([_with(batch)]))
        await self._store(batch)
        return self._found

    async def _store(self, batch: RankBatch) -> None:
        """Store in order: the second half of a rank's records counts only behind the first."""
        if self._attempts >= MAX_ATTEMPTS:
            return
        self._attempts += 1
        try:
            self._found.append(await self._commit([batch]))
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a record makes of the database, the others go on
            for part in halves(batch) or [_refused(batch, error)]:
                await self._store(part)


def halves(batch: RankBatch) -> list[RankBatch]:
    """The batch in two; nothing where it has no more than one record or line."""
    if batch.metrics and batch.logs:
        return [_with(batch, metrics=batch.metrics), _with(batch, logs=batch.logs)]
    for stream in ("metrics", "logs"):
        items = getattr(batch, stream)
        if len(items) > 1:
            middle = len(items) // 2
            return [_with(batch, **{stream: items[:middle]}), _with(batch, **{stream: items[middle:]})]
    return []


def _with(batch: RankBatch, **streams: Any) -> RankBatch:
    return RankBatch(job_id=batch.job_id, generation=batch.generation, rank=batch.rank, **streams)


def _refused(batch: RankBatch, error: Exception) -> RankBatch:
    """The batch with its one record or line marked as unreadable."""
    logger.error("a record of rank %d of job %s cannot be stored", batch.rank, batch.job_id, exc_info=error)
    why = f"the database refuses it: {type(error).__name__}: {error}"[:SHOWN_CHARACTERS]
    blank: dict[str, Any] = {stream: [Unreadable(item.seq, why) for item in getattr(batch, stream)] for stream in ("metrics", "logs")}
    return _with(batch, **blank)


def together(found: Sequence[StoredBatches]) -> StoredBatches:
    """The outcome of all parts; the highest marks."""
    marks: dict[Stream, int] = {}
    refused: list[RefusedRecord] = []
    crowded: dict[str, str] = {}
    for each in found:
        refused += each.refused
        crowded |= each.crowded
        for stream, seq in each.marks.items():
            marks[stream] = max(seq, marks.get(stream, 0))
    return StoredBatches(marks, refused, crowded)
