"""An agent's upload: check whose it is, store points and lines, apply events, say what is held.

A batch counts only when its node holds that rank of that generation: of the newest one or, for news that comes late, an
older one. Anything else can never become right; it is acknowledged so that the agent forgets it, and one warning event says so.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services, nudge_after_commit
from api.errors import ProblemError
from api.services import bus, events
from api.services.identity import node_actor
from api.services.ingest import Numbered, contiguous, streams_of
from api.services.progress import ProgressKeeper
from api.services.writer import Writer
from db.models.nodes import NodeRow
from db.repositories import rank_marks
from db.repositories.ingest import Stream
from db.repositories.rank_marks import Place
from monitoring.points import HighWater, RankBatch, RankEvent, Upload, UploadReply

logger = logging.getLogger(__name__)
MAX_RECORDS = 5_000
MAX_BATCHES = 1_000
MAX_STEP = 1 << 53
#: What a rank event does; runs in the transaction that moves the event mark, so exactly once.
ApplyEvent = Callable[[AsyncSession, NodeRow, RankBatch, RankEvent], Awaitable[None]]


@dataclass
class UploadDoor:
    services: Services
    writer: Writer
    progress: ProgressKeeper
    apply_event: ApplyEvent
    _warned: set[tuple[str, Place]] = field(default_factory=set)

    async def accept(self, node: NodeRow, upload: Upload) -> UploadReply:
        check_limits(upload)
        async with self.services.control.read() as session:
            held = await rank_marks.ranks_of(session, node.id, {batch.job_id for batch in upload.batches})
            marks = await rank_marks.load(session, [place_of(batch) for batch in upload.batches])
        ours = [batch for batch in upload.batches if place_of(batch) in held]
        strangers = [batch for batch in upload.batches if place_of(batch) not in held]
        await self._warn(node, strangers)
        stored = await self.writer.store(ours) if ours else {}
        for batch in ours:
            self.progress.note(batch)
        marks |= await self._apply_events(node, [batch for batch in ours if batch.events])
        answers = [_held(batch, stored, marks) for batch in ours]
        return UploadReply(acknowledged=answers + [_forget(batch) for batch in strangers])

    async def _apply_events(self, node: NodeRow, batches: Sequence[RankBatch]) -> dict[Place, int]:
        """The event mark of each batch's rank after applying what is new, in one transaction."""
        if not batches:
            return {}
        async with self.services.write() as session:
            places = [place_of(batch) for batch in batches]
            marks = dict.fromkeys(places, 0) | await rank_marks.load(session, places, lock=True)
            for batch in batches:
                marks[place_of(batch)] = await self._apply_batch(session, node, batch, marks[place_of(batch)])
            await rank_marks.save(session, {place: seq for place, seq in marks.items() if seq})
            nudge_after_commit(session, bus.SCHEDULER)
        return marks

    async def _apply_batch(self, session: AsyncSession, node: NodeRow, batch: RankBatch, mark: int) -> int:
        """The mark after what could be applied. A failing event stays with the agent, which sends it again; the rest is stored."""
        for event in contiguous(batch.events, mark):
            try:
                async with session.begin_nested():
                    await self.apply_event(session, node, batch, event)
            except Exception:
                logger.exception("event %s of rank %s of job %s could not be applied", event.seq, batch.rank, batch.job_id)
                break
            mark = event.seq
        return mark

    async def _warn(self, node: NodeRow, strangers: Sequence[RankBatch]) -> None:
        new = {place_of(batch) for batch in strangers} - {place for node_id, place in self._warned if node_id == node.id}
        if not new:
            return
        self._warned |= {(node.id, place) for place in new}
        async with self.services.write() as session:
            for job_id, generation, rank in sorted(new):
                await events.record(
                    session,
                    type="upload.dropped",
                    actor=node_actor(node),
                    cause="unknown_rank",
                    message=f"{node.name} sent news of rank {rank}, generation {generation} of job {job_id}, which it does not hold; dropped",
                    node_id=node.id,
                    data={"job_id": job_id, "generation": generation, "rank": rank},
                )


def check_limits(upload: Upload) -> None:
    count = sum(len(batch.metrics) + len(batch.logs) + len(batch.events) for batch in upload.batches)
    if count > MAX_RECORDS or len(upload.batches) > MAX_BATCHES:
        raise ProblemError(
            "too_many_records",
            f"{count} records in {len(upload.batches)} batches; the limit is {MAX_RECORDS} in {MAX_BATCHES}: send them in several uploads",
        )
    for batch in upload.batches:
        for record in batch.metrics:
            if not 0 <= record.step < MAX_STEP:
                raise ProblemError("invalid_request", f"step {record.step} of rank {batch.rank} is not between 0 and {MAX_STEP}")


def place_of(batch: RankBatch) -> Place:
    return (batch.job_id, batch.generation, batch.rank)


def _held(batch: RankBatch, stored: Mapping[Stream, int], applied: Mapping[Place, int]) -> HighWater:
    metrics, logs = (stored.get(stream, 0) for stream in streams_of(batch))
    return _high_water(batch, metrics, logs, applied.get(place_of(batch), 0))


def _forget(batch: RankBatch) -> HighWater:
    """As if everything in the batch had been stored."""
    return _high_water(batch, _newest(batch.metrics), _newest(batch.logs), _newest(batch.events))


def _newest(items: Sequence[Numbered]) -> int:
    return max((item.seq for item in items), default=0)


def _high_water(batch: RankBatch, metrics: int, logs: int, events: int) -> HighWater:
    return HighWater(job_id=batch.job_id, generation=batch.generation, rank=batch.rank, metrics=metrics, logs=logs, events=events)
