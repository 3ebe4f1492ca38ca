"""Gradients that the ranks of a job have recorded, where its spec's `gradients` asks for it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from paceline.api.core.lists import numbers
from paceline.api.deps import ReadSession, ServicesDep
from paceline.api.schemas.gradients import JobGradients, StepGradients
from paceline.api.services.history import gradients
from paceline.api.services.jobs import jobs

router = APIRouter(prefix="/training/jobs/{job_id}/gradients", tags=["history"])


@router.get("")
async def job_gradients(job_id: str, session: ReadSession) -> JobGradients:
    """The steps of which there are records."""
    await jobs.find(session, job_id)
    return await gradients.of_job(session, job_id)


@router.get("/{step}")
async def step_gradients(
    job_id: str,
    step: Annotated[int, Path(ge=1, lt=1 << 53)],
    services: ServicesDep,
    rank: Annotated[str | None, Query(description="0,1; default: all")] = None,
) -> StepGradients:
    """Each parameter's gradient on each rank in one step, as backward left it."""
    async with services.control.read() as session:
        await jobs.find(session, job_id)
    return await gradients.of_step(services, job_id, step, numbers("rank", rank, most=gradients.MOST_RANKS))
