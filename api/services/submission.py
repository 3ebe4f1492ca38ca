"""A job is submitted: a plan is chosen outside of any transaction, then the job is stored in one, if what the plan was chosen for still stands."""

from __future__ import annotations

import functools

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.errors import ProblemError
from api.schemas.common import Actor
from api.schemas.jobs import Job
from api.services import job_lifecycle, jobs, plan, plan_auto, shared_folder
from api.services.idempotency import OnceOnly
from api.services.plan_auto import GroundMovedError, Resolved
from training.spec.job import JobSpec

#: Choices for one submission, while nodes come and go.
ATTEMPTS = 4


async def submit(services: Services, once: OnceOnly, spec: JobSpec, actor: Actor, plan_hash: str | None) -> Job:
    """The job; or, of a repeated request, the answer of the first, for which nothing is chosen again."""
    resolved = Resolved(spec)
    for _ in range(ATTEMPTS):
        try:
            async with services.write(request=True) as session:
                store = functools.partial(_store, services, session, spec, resolved, actor, plan_hash)
                return await once.run(session, spec, Job, store)
        except GroundMovedError:
            resolved = await plan_auto.resolve(services, spec)
    raise ProblemError(
        "busy", f"nodes came or went while a plan was chosen, {ATTEMPTS - 1} times in a row; try again", headers={"Retry-After": "5"}
    )


async def _store(services: Services, session: AsyncSession, asked: JobSpec, resolved: Resolved, actor: Actor, plan_hash: str | None) -> Job:
    now = services.now()
    await plan_auto.check_ground(session, asked, resolved)
    await shared_folder.check(session, resolved.spec)
    if plan_hash is not None:
        await plan.check_unchanged(session, resolved, plan_hash, now)
    job = await job_lifecycle.submit(session, resolved.spec, actor, now)
    if resolved.choice is not None:
        await plan_auto.record(session, job, resolved.choice, now)
    return await jobs.describe(session, job, now)
