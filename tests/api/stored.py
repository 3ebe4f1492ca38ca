"""A coordinator's stored data, for tests of what is kept and deleted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update

from paceline.api.core.context import Services
from paceline.api.loops.storage import StorageKeeper
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.services.storage import rollups
from paceline.api.services.storage.keeping import DeletionPace
from paceline.cluster.states import JobState
from paceline.db.base import MetricsBase
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.points import RankBatch
from tests import factories
from tests.factories import START

#: Of a pass, on a machine that is busy with other things.
PATIENCE = 60.0


@dataclass
class Store:
    """A coordinator with one node, to store as its ranks do and to let time pass."""

    services: Services
    writer: MetricsWriter
    node: NodeRow
    lines: dict[str, int] = field(default_factory=dict)  # so far, by job

    async def job(self, state: JobState = JobState.RUNNING, **columns: Any) -> JobRow:
        async with self.services.write() as session:
            job = await factories.create_running_job(session, self.node, **columns)
            if state is not JobState.RUNNING:
                await session.execute(update(JobRow).where(JobRow.id == job.id).values(state=state, ended_at=START))
        return job

    async def store(self, job: JobRow, first: int = 1, steps: int = 100, *, at: datetime = START, lines: int = 10) -> None:
        """`steps` steps of rank 0, and as many lines as `lines` says, that arrive at `at`, when their roll-ups are made too."""
        self.writer.now = lambda: at
        metrics, logs = factories.records(first, steps, other=2.0), factories.log_lines(lines, seq=1 + self.lines.get(job.id, 0))
        self.lines[job.id] = self.lines.get(job.id, 0) + lines
        await self.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=metrics, logs=logs)])
        assert await rollups.refresh(self.services, DeletionPace.of(PATIENCE), at)

    async def passes(self, now: datetime, **settings: Any) -> None:
        """One pass of the loop at `now`, with these settings changed."""
        services = replace(self.services, settings=self.services.settings.model_copy(update=settings))
        await StorageKeeper(services, pass_seconds=PATIENCE).step_once(now)

    async def count(self, table: Any, *where: Any) -> int:
        database = self.services.metrics if issubclass(table, MetricsBase) else self.services.control
        async with database.read() as session:
            return (await session.scalar(select(func.count()).select_from(table).where(*where))) or 0

    async def told(self, job: JobRow, type: str = "job.data_removed") -> list[str]:
        async with self.services.control.read() as session:
            query = select(EventRow.message).where(EventRow.job_id == job.id, EventRow.type == type).order_by(EventRow.seq)
            return list(await session.scalars(query))
