"""The curves of a job's metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from paceline.api.core.lists import numbers, words
from paceline.api.deps import ReadSession, ServicesDep
from paceline.api.errors import not_found
from paceline.api.schemas.metrics import JobMetrics
from paceline.api.services.history import curves
from paceline.api.services.specs.stored_specs import stored_part
from paceline.db.repositories import jobs as job_rows

router = APIRouter(tags=["metrics"])
MAX_RANKS = 256
Step = Annotated[int | None, Query(ge=0, lt=1 << 53)]


@router.get("/metrics/jobs/{job_id}")
async def job_metrics(
    job_id: str,
    session: ReadSession,
    services: ServicesDep,
    names: Annotated[str | None, Query(description="a,b; default: the job's own metrics")] = None,
    name: Annotated[list[str] | None, Query(description="one as it is called, beside `names`; repeatable: names may have commas")] = None,
    ranks: Annotated[str, Query(description="0,1")] = "0",
    first_step: Step = None,
    last_step: Step = None,
    buckets: Annotated[int, Query(ge=1, le=2000)] = 2000,
) -> JobMetrics:
    job = await job_rows.get(session, job_id)
    if job is None:
        raise not_found("job", job_id)
    async with services.metrics.read() as points:
        return await curves.job_metrics(
            points,
            job_id,
            wanted=None if names is None and name is None else [*(words(names) or []), *(name or [])],
            ranks=numbers("ranks", ranks, most=MAX_RANKS) or [],
            steps=(first_step, last_step),
            limit=buckets,
            of_own_model=stored_part(job, "model") is not None,
        )
