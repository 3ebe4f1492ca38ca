"""Curves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import ReadSession, ServicesDep
from api.errors import not_found
from api.schemas.metrics import JobMetrics
from api.services import curves
from api.services.lists import numbers, words
from db.repositories import logs as log_rows

router = APIRouter(tags=["metrics"])
MAX_RANKS = 256
Step = Annotated[int | None, Query(ge=0, lt=1 << 53)]


@router.get("/metrics/jobs/{job_id}")
async def job_metrics(
    job_id: str,
    session: ReadSession,
    services: ServicesDep,
    names: Annotated[str | None, Query(description="a,b; default: the job's own metrics")] = None,
    ranks: Annotated[str, Query(description="0,1")] = "0",
    first_step: Step = None,
    last_step: Step = None,
    buckets: Annotated[int, Query(ge=1, le=2000)] = 2000,
) -> JobMetrics:
    if await log_rows.job_state(session, job_id) is None:
        raise not_found("job", job_id)
    async with services.metrics.read() as points:
        return await curves.job_metrics(
            points,
            job_id,
            wanted=words(names),
            ranks=numbers("ranks", ranks, most=MAX_RANKS) or [],
            steps=(first_step, last_step),
            limit=buckets,
        )
