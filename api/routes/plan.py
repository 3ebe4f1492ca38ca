"""The dry run: the effect of a spec."""

from __future__ import annotations

from fastapi import APIRouter

from paceline.api.deps import ServicesDep, Viewer
from paceline.api.middleware.spec_body import SpecRoute
from paceline.api.schemas.jobs import Plan
from paceline.api.services.jobs import packages
from paceline.api.services.planning import plan, plan_auto
from paceline.training.spec.job import JobSpec

router = APIRouter(prefix="/training", tags=["jobs"], route_class=SpecRoute)


@router.post("/plan")
async def plan_job(body: JobSpec, caller: Viewer, services: ServicesDep) -> Plan:
    """The effective spec, what it needs, and where it would run now or why it could not. Changes nothing. Warnings about the job's folder are
    for members, who may run code on the nodes."""
    spec = await packages.with_files_read(services, body)
    return await plan.plan(services, await plan_auto.resolve(services, spec), sees_folders=caller.may("member"))
