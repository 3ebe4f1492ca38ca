"""The Python stacks of a running job's ranks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from paceline.api.core.lists import numbers
from paceline.api.deps import ServicesDep
from paceline.api.routes.logs import MAX_RANKS
from paceline.api.schemas.stacks import JobStacks
from paceline.api.services.scheduling import stacks

router = APIRouter(prefix="/training/jobs/{job_id}/stacks", tags=["jobs"])
WAIT_SECONDS, MOST_WAIT_SECONDS = 10.0, 25.0


@router.get("")
async def job_stacks(
    job_id: str,
    services: ServicesDep,
    rank: Annotated[str | None, Query(description="0,1; default: all")] = None,
    wait: Annotated[float, Query(ge=0, le=MOST_WAIT_SECONDS, description="seconds to wait for the agents' answers")] = WAIT_SECONDS,
) -> JobStacks:
    """The place of every rank of a running job in its code, taken now by py-spy on its node, and which rank differs from the others."""
    return await stacks.collect(services, job_id, numbers("rank", rank, most=MAX_RANKS), wait)
