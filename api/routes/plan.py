"""The dry run: what a spec would do."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import ServicesDep
from api.middleware.spec_body import SpecRoute
from api.schemas.jobs import Plan
from api.services import plan, plan_auto
from training.spec.job import JobSpec

router = APIRouter(prefix="/training", tags=["jobs"], route_class=SpecRoute)


@router.post("/plan")
async def plan_job(body: JobSpec, services: ServicesDep) -> Plan:
    """The effective spec, what it needs, and where it would run now or why it could not. Changes nothing."""
    return await plan.plan(services, await plan_auto.resolve(services, body))
