"""Reports the records that are lost because the coordinator was restored from an older copy of its database, and their node had given them up: it
keeps a part of what was acknowledged, and says with the first record behind the gap that nothing before it is left.

An event of the job reports each gap once, before the rank's mark moves beyond it or with that: a gap is never passed over in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import node_actor
from paceline.api.services.ingest.screening import refusal
from paceline.api.services.ingest.selection import behind_gone, streams_of
from paceline.api.services.lifecycle import events
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import ingest
from paceline.monitoring.points import RankBatch

LOST = "job.records_lost"


@dataclass(frozen=True)
class LostRange:
    """The records `first` to `last` of a rank are in no database and on no node."""

    batch: RankBatch
    kind: Literal["points", "events"]
    first: int
    last: int
    where: str = ""  # of points: their steps, in words

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def what(self) -> str:
        """The gap's own name among those of the job: one that is reported already is not reported again."""
        return f"{self.kind} {self.first} to {self.last} of rank {self.batch.rank} in generation {self.batch.generation}"


@dataclass(frozen=True)
class LostRecords:
    services: Services

    async def tell_of_points(self, node: NodeRow, batches: Sequence[RankBatch]) -> int:
        """Report the gaps in the points that are about to be stored, and return how many records they have."""
        claims = [batch for batch in batches if batch.metrics_gone]
        if not claims:
            return 0
        async with self.services.metrics.read() as session:
            marks = await ingest.marks(session, [streams_of(batch)[0] for batch in claims])
            gaps = [gap for batch in claims if (gap := await _gap_in_points(session, batch, marks.get(streams_of(batch)[0], 0)))]
        if gaps:
            async with self.services.write() as session:
                for gap in gaps:
                    await _record(session, node, gap)
        return sum(gap.count for gap in gaps)

    async def tell_of_events(self, session: AsyncSession, node: NodeRow, batch: RankBatch, mark: int) -> int:
        """Report the gap between a rank's mark and the events of a batch, and return how many events it has."""
        behind = behind_gone(batch.events, mark, batch.events_gone)
        if behind > mark:
            await _record(session, node, LostRange(batch, "events", mark + 1, behind))
        return behind - mark


async def _gap_in_points(session: AsyncSession, batch: RankBatch, mark: int) -> LostRange | None:
    behind = behind_gone(batch.metrics, mark, batch.metrics_gone)
    if behind == mark:
        return None
    before = await ingest.newest_step(session, batch.job_id, batch.generation, batch.rank)
    after = next((record.step for record in batch.metrics if refusal(record) is None), None)
    return LostRange(batch, "points", mark + 1, behind, _where(before, after))


def _where(before: int | None, after: int | None) -> str:
    """The place of lost points in words: behind the newest step that is stored, before the first one that is left."""
    if before is not None and (after is None or before < after):
        return f" after step {before}" if after is None else f" between steps {before} and {after}"
    return "" if after is None else f" before step {after}"


async def _record(session: AsyncSession, node: NodeRow, gap: LostRange) -> None:
    if await event_rows.has_any_about(session, gap.batch.job_id, LOST, gap.what):
        return  # the coordinator ended before it could store what is behind the gap
    await events.record(
        session,
        type=LOST,
        actor=node_actor(node),
        cause="database_restored",
        message=f"{gap.count} {gap.kind} of rank {gap.batch.rank}{gap.where} are lost: the coordinator had them once and was restored from an older "
        f"copy of its database, and {node.name} keeps only the newest of what it has sent (--spool-kept)",
        job_id=gap.batch.job_id,
        node_id=node.id,
        generation=gap.batch.generation,
        data={"what": gap.what, "rank": gap.batch.rank, "first": gap.first, "last": gap.last},
    )
