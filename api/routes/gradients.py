"""Gradients that the ranks of a job have recorded: where its spec's `gradients` asks for it, and on request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from paceline.api.core.lists import numbers
from paceline.api.deps import Member, ReadSession, ServicesDep, WriteSession
from paceline.api.schemas.gradients import GradientsOrder, JobGradients, RequestedGradients, StepGradients
from paceline.api.services.history import gradients
from paceline.api.services.jobs import jobs
from paceline.api.services.jobs.idempotency import Once
from paceline.api.services.scheduling import gradients_requests

router = APIRouter(prefix="/training/jobs/{job_id}/gradients", tags=["history"])


@router.get("")
async def job_gradients(job_id: str, session: ReadSession) -> JobGradients:
    """The steps of which there are records, and the newest request for a further one."""
    job = await jobs.find(session, job_id)
    return await gradients.of_job(session, job_id, await gradients_requests.newest(session, job))


@router.post("", status_code=201)
async def record_gradients(
    job_id: str, body: GradientsOrder, caller: Member, services: ServicesDep, once: Once, session: WriteSession
) -> RequestedGradients:
    """Have all ranks of a running job record their gradients of its next step."""

    async def create() -> RequestedGradients:
        return await gradients_requests.ask(session, await jobs.find(session, job_id, lock=True), body, caller.actor, services.now())

    return await once.run(session, body, RequestedGradients, create)


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
