"""The history of a job, its cost and its speed: incidents, goodput, samples, performance; and whether two runs are the same."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from paceline.api.core import paging
from paceline.api.core.lists import words
from paceline.api.core.paging import Cursor, Limit
from paceline.api.deps import ReadSession, ServicesDep
from paceline.api.routes.heavy import Reads
from paceline.api.schemas.comparison import ComparisonReport
from paceline.api.schemas.goodput import Goodput
from paceline.api.schemas.incidents import Incident
from paceline.api.schemas.performance import Performance
from paceline.api.schemas.readings import JobUsage
from paceline.api.schemas.samples import SampleAudit
from paceline.api.services.history import card_usage, comparison, incident_views, performance
from paceline.api.services.history.history_process import HistoryQuestion
from paceline.api.services.jobs import jobs

router = APIRouter(prefix="/training", tags=["jobs"])


@router.get("/jobs/{job_id}/incidents")
async def list_incidents(job_id: str, session: ReadSession, services: ServicesDep) -> list[Incident]:
    """Every fault of the job, oldest first: its culprit, its cost, what was done about it and why."""
    row = await jobs.find(session, job_id)
    async with services.metrics.read() as points:
        return await incident_views.list_incidents(session, points, row, services.now())


@router.get("/jobs/{job_id}/goodput")
async def job_goodput(job_id: str, reads: Reads) -> Goodput:
    """Useful step time over wall time since the job first had slots, with a cause for every second of the rest."""
    return await reads.get(HistoryQuestion("goodput", (job_id,)), Goodput)


@router.get("/jobs/{job_id}/performance")
async def job_performance(job_id: str, session: ReadSession, services: ServicesDep) -> Performance:
    """Throughput, where a step's time goes, MFU with its formula and the peak it is a share of, and each rank's peak memory."""
    row = await jobs.find(session, job_id)
    async with services.metrics.read() as points:
        return await performance.of_job(session, points, row)


@router.get("/jobs/{job_id}/usage")
async def job_usage(job_id: str, session: ReadSession, services: ServicesDep) -> JobUsage:
    """Slot-hours and energy of a job, and what each of its cards did: a card that it holds and does not use is `idle`."""
    row = await jobs.find(session, job_id)
    async with services.metrics.read() as points:
        return await card_usage.of_job(session, points, row, services.now(), services.settings.keep.readings)


@router.get("/jobs/{job_id}/samples")
async def job_samples(
    job_id: str,
    reads: Reads,
    step: Annotated[int | None, Query(ge=1, lt=1 << 53, description="list only what this step used")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> SampleAudit:
    """The samples that the committed steps used, and whether each was used exactly once."""
    paging.decode(cursor, int)
    return await reads.get(HistoryQuestion("samples", (job_id,), (("step", step), ("cursor", cursor), ("limit", limit))), SampleAudit)


@router.get("/compare")
async def compare_jobs(
    jobs: Annotated[str, Query(description="ids, comma-separated: each is compared with the first one", max_length=1000)],
    reads: Reads,
) -> ComparisonReport:
    """Is it the same run? Losses, gradient norms and evaluations as bits, parameters by their hash, and what differs in the specs."""
    return await reads.get(HistoryQuestion("compare", comparison.named(words(jobs) or [])), ComparisonReport)
