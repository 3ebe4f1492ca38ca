"""Handles an agent's upload: checks its ranks, stores points and lines, applies events, answers with what is held.

A batch counts only when its node holds that rank of that generation: of the newest one or, for news that comes late, an
older one. Anything else can never become right; it is acknowledged so that the agent forgets it, and one warning event says so.
A record that cannot be stored is passed over in the same way (`screening.py`), alone: never an upload for the sake of a record.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.core.vitals import GONE, REFUSED, UNKNOWN_RANK, Vitals
from paceline.api.services.ingest.lost_records import LostRecords
from paceline.api.services.ingest.progress import ProgressKeeper
from paceline.api.services.ingest.readings import ReadingsWriter
from paceline.api.services.ingest.screening import SHOWN_CHARACTERS, refusal, size_of
from paceline.api.services.ingest.selection import (
    RefusedRecord,
    SequencedItem,
    StoredBatches,
    behind_gone,
    contiguous,
    in_parts,
    streams_of,
)
from paceline.api.services.ingest.upload_warnings import UploadWarnings
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.services.lifecycle.state_change import StaleStateError
from paceline.cluster.protocol import RankKey
from paceline.db.errors import DatabaseError
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import ingest, rank_marks
from paceline.db.repositories.ingest import Stream
from paceline.monitoring.points import HighWater, RankBatch, RankEvent, Upload, UploadReply
from paceline.monitoring.readings import NodeReadings

logger = logging.getLogger(__name__)
#: How often an event that fails is tried before it is passed over: it may have met a change of state.
MAX_TRIES = 5
#: Events that share a transaction: each takes one to three milliseconds of the writer's turn, for which submissions and reports of nodes wait.
EVENTS_TOGETHER = 50
MAX_REMEMBERED_TRIES = 1_000
#: What a rank event does; runs in the transaction that moves the event mark, so exactly once. It returns why the history has no entry of the
#: event; None: it has one, or needs none.
ApplyEvent = Callable[[AsyncSession, NodeRow, RankBatch, RankEvent], Awaitable[str | None]]


@dataclass
class UploadHandler:
    services: Services
    writer: MetricsWriter
    progress: ProgressKeeper
    apply_event: ApplyEvent
    vitals: Vitals
    readings: ReadingsWriter
    warnings: UploadWarnings = field(init=False)
    lost: LostRecords = field(init=False)
    _tries: OrderedDict[tuple[RankKey, int], int] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.warnings = UploadWarnings(self.services)
        self.lost = LostRecords(self.services)

    async def accept(self, node: NodeRow, upload: Upload, *, bytes: int = 0) -> UploadReply:
        """Store an upload. `bytes`: of the body that the upload came in."""
        with self.vitals.counting_failures():
            held = await self._accept(node, upload, bytes) if upload.batches or upload.readings is None else []
            stored = None if upload.readings is None else await self._store_readings(node, upload.readings)
            return UploadReply(acknowledged=held, readings=stored, passes_gone=True)

    async def _store_readings(self, node: NodeRow, readings: NodeReadings) -> int:
        if self.services.disk.is_low:
            raise self.services.disk.refusal()
        return await self.readings.store(node.id, readings)

    async def _accept(self, node: NodeRow, upload: Upload, bytes: int) -> list[HighWater]:
        held = await self.services.node_identities.held(node, {RankKey.of(batch) for batch in upload.batches})
        ours = [batch for batch in upload.batches if RankKey.of(batch) in held]
        strangers = [batch for batch in upload.batches if RankKey.of(batch) not in held]
        await self.warnings.of_strangers(node, strangers)
        if strangers:
            self.vitals.dropped.labels(UNKNOWN_RANK).inc(sum(map(size_of, strangers)))
        if self.services.disk.is_low and any(batch.metrics or batch.logs for batch in ours):
            return await self._events_only(node, ours, strangers)
        told = [batch for batch in ours if batch.metrics or batch.logs]
        gone = await self.lost.tell_of_points(node, told)
        stored = await self.writer.store(told, bytes=bytes) if told else StoredBatches()
        if gone:
            self.vitals.dropped.labels(GONE).inc(gone)
        for batch in ours:
            self.progress.note(batch)
        applied, refused = await self._apply_events(node, [batch for batch in ours if batch.events])
        dropped = replace(stored, refused=[*stored.refused, *refused])
        await self.warnings.of_jobs(node, dropped, {batch.job_id for batch in ours})
        return [_held(batch, stored.marks, applied) for batch in ours] + [_forget(batch) for batch in strangers]

    async def _events_only(self, node: NodeRow, ours: Sequence[RankBatch], strangers: Sequence[RankBatch]) -> list[HighWater]:
        """The disk is low: points and lines stay with the agent, events go on. Raises disk_low where there is none to take."""
        async with self.services.control.read() as session:
            before = await rank_marks.load(session, [RankKey.of(batch) for batch in ours])
        applied, refused = await self._apply_events(node, [batch for batch in ours if batch.events])
        await self.warnings.of_jobs(node, StoredBatches(refused=refused), {batch.job_id for batch in ours})
        if not strangers and all(seq <= before.get(place, 0) for place, seq in applied.items()):
            raise self.services.disk.refusal()
        async with self.services.metrics.read() as session:
            stored = await ingest.marks(session, [stream for batch in ours for stream in streams_of(batch)])
        return [_held(batch, stored, {**before, **applied}) for batch in ours] + [_forget(batch) for batch in strangers]

    async def _apply_events(self, node: NodeRow, batches: Sequence[RankBatch]) -> tuple[dict[RankKey, int], list[RefusedRecord]]:
        """The event mark of each batch's rank after applying what is new, in short transactions, and what was passed over."""
        marks: dict[RankKey, int] = {}
        refused: list[RefusedRecord] = []
        for part in in_parts(batches, EVENTS_TOGETHER):
            applied, told = await self._apply_part(node, part)
            marks |= applied
            refused += told
        return marks, refused

    async def _apply_part(self, node: NodeRow, batches: Sequence[RankBatch]) -> tuple[dict[RankKey, int], list[RefusedRecord]]:
        """Do the same in one transaction."""
        refused: list[RefusedRecord] = []
        gone = 0
        async with self.services.write() as session:
            places = [RankKey.of(batch) for batch in batches]
            marks = dict.fromkeys(places, 0) | await rank_marks.load(session, places, lock=True)
            for batch in batches:
                before = marks[RankKey.of(batch)]
                gone += await self.lost.tell_of_events(session, node, batch, before)
                mark, told = await self._apply_batch(session, node, batch, behind_gone(batch.events, before, batch.events_gone))
                marks[RankKey.of(batch)] = mark
                refused += [RefusedRecord(*RankKey.of(batch), len(told), told[0])] if told else []
            await rank_marks.save(session, {place: seq for place, seq in marks.items() if seq})
            nudge_after_commit(session, bus.SCHEDULER)
        self.vitals.dropped.labels(REFUSED).inc(sum(each.count for each in refused))
        self.vitals.dropped.labels(GONE).inc(gone)
        return marks, refused

    async def _apply_batch(self, session: AsyncSession, node: NodeRow, batch: RankBatch, mark: int) -> tuple[int, list[str]]:
        """Apply the events of a batch. Returns the mark after the ones that could be applied, and why others were passed over. A failing
        event stays with the agent, which sends it again; one that fails again and again is passed over, so that it does not hold up the
        rank's later events."""
        refused: list[str] = []
        for event in contiguous(batch.events, mark):
            why = refusal(event)
            if why is None:
                try:
                    async with session.begin_nested():
                        why = await self.apply_event(session, node, batch, event)
                except Exception as error:
                    logger.exception("event %s of rank %s of job %s could not be applied", event.seq, batch.rank, batch.job_id)
                    if not self._gives_up(RankKey.of(batch), event.seq, error):
                        break
                    why = f"a {event.kind} event fails: {type(error).__name__}: {error}"[:SHOWN_CHARACTERS]
            refused += [why] if why else []
            mark = event.seq
        return mark, refused

    def _gives_up(self, place: RankKey, seq: int, error: Exception) -> bool:
        """Whether this event has failed often enough of itself: a database that is away, and a race, are not its fault."""
        if isinstance(error, DatabaseError | OperationalError | InterfaceError | StaleStateError):
            return False
        self._tries[place, seq] = tries = self._tries.pop((place, seq), 0) + 1
        while len(self._tries) > MAX_REMEMBERED_TRIES:
            self._tries.popitem(last=False)
        return tries >= MAX_TRIES


def _held(batch: RankBatch, stored: Mapping[Stream, int], applied: Mapping[RankKey, int]) -> HighWater:
    metrics, logs = (stored.get(stream, 0) for stream in streams_of(batch))
    return _high_water(batch, metrics, logs, applied.get(RankKey.of(batch), 0))


def _forget(batch: RankBatch) -> HighWater:
    """The answer as if everything in the batch had been stored."""
    return _high_water(batch, _newest(batch.metrics), _newest(batch.logs), _newest(batch.events))


def _newest(items: Sequence[SequencedItem]) -> int:
    return max((item.seq for item in items), default=0)


def _high_water(batch: RankBatch, metrics: int, logs: int, events: int) -> HighWater:
    return HighWater(job_id=batch.job_id, generation=batch.generation, rank=batch.rank, metrics=metrics, logs=logs, events=events)
