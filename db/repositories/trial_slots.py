"""The slots that the ranks of many jobs held, in a few queries: for analyses of whole experiments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.experiments import TrialRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow

#: Jobs of one query.
JOBS_AT_ONCE = 500


class GenerationSpan(NamedTuple):
    """One generation of a job. `ended_at` None: it is the present one."""

    job_id: str
    generation: int
    world_size: int
    start_step: int
    started_at: datetime
    ended_at: datetime | None


class HeldSlot(NamedTuple):
    """A slot that a rank of a generation holds or held."""

    job_id: str
    generation: int
    rank: int
    node_id: str
    slot: int
    card: int | None  # the driver's index of the card that the slot was then; None: a CPU slot, or the rank never came up


async def generations(session: AsyncSession, job_ids: Collection[str]) -> dict[str, list[GenerationSpan]]:
    """The generations of each job, the oldest first."""
    columns = (getattr(GenerationRow, name) for name in GenerationSpan._fields)
    query = select(*columns).order_by(GenerationRow.job_id, GenerationRow.generation)
    found: defaultdict[str, list[GenerationSpan]] = defaultdict(list)
    for some in _batches(job_ids):
        for row in await session.execute(query.where(GenerationRow.job_id.in_(some))):
            found[row[0]].append(GenerationSpan(*row))
    return dict(found)


async def slots(session: AsyncSession, job_ids: Collection[str]) -> dict[str, list[HeldSlot]]:
    """The slots of every generation of each job; those of generations whose ranks are no longer kept are absent."""
    columns = (getattr(RankRow, name) for name in HeldSlot._fields)
    query = select(*columns).order_by(RankRow.job_id, RankRow.generation, RankRow.rank)
    found: defaultdict[str, list[HeldSlot]] = defaultdict(list)
    for some in _batches(job_ids):
        for row in await session.execute(query.where(RankRow.job_id.in_(some))):
            found[row[0]].append(HeldSlot(*row))
    return dict(found)


async def parallelism_of_trials(session: AsyncSession, experiment_id: str) -> dict[int, dict[str, Any] | None]:
    """The `parallelism` section of each trial's job spec, by the trial's index; None: it is left out."""
    query = select(TrialRow.index, TrialRow.document["parallelism"]).where(TrialRow.experiment_id == experiment_id)
    return {row[0]: row[1] for row in await session.execute(query)}


async def parallelism_of_jobs(session: AsyncSession, job_ids: Collection[str]) -> dict[str, dict[str, Any] | None]:
    """The `parallelism` section of each job as it was submitted, with the strategy that was chosen for `auto`."""
    found: dict[str, dict[str, Any] | None] = {}
    for some in _batches(job_ids):
        for job_id, spec in await session.execute(select(JobRow.id, JobRow.spec).where(JobRow.id.in_(some))):
            found[job_id] = spec.document.get("parallelism")
    return found


async def documents_of_trials(session: AsyncSession, experiment_id: str) -> dict[int, dict[str, Any]]:
    """The job spec of each trial, by the trial's index."""
    query = select(TrialRow.index, TrialRow.document).where(TrialRow.experiment_id == experiment_id, TrialRow.job_id.is_not(None))
    return {row[0]: row[1] for row in await session.execute(query)}


async def nodes_of_trials(session: AsyncSession, experiment_id: str) -> Sequence[NodeRow]:
    """The nodes on which any trial has run, as far as its ranks are kept."""
    used = (
        select(RankRow.node_id).join(TrialRow, TrialRow.job_id == RankRow.job_id).where(TrialRow.experiment_id == experiment_id).distinct()
    )
    return (await session.scalars(select(NodeRow).where(NodeRow.id.in_(used)).order_by(NodeRow.id))).all()


def _batches(job_ids: Collection[str]) -> Sequence[list[str]]:
    ordered = sorted(job_ids)
    return [ordered[at : at + JOBS_AT_ONCE] for at in range(0, len(ordered), JOBS_AT_ONCE)]
