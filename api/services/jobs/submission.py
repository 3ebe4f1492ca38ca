"""Submits a job: a plan is chosen outside of any transaction, then the job is stored in one, if the cluster that the plan was chosen for
still stands."""

from __future__ import annotations

import functools
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.folder_looks import names_a_file
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Actor
from paceline.api.schemas.jobs import Job
from paceline.api.services.bundles import bundles
from paceline.api.services.jobs import descriptions, packages, secrets
from paceline.api.services.jobs.idempotency import OnceOnly
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.nodes import node_tools, shared_folder
from paceline.api.services.planning import plan, plan_auto
from paceline.api.services.planning.plan_auto import ClusterChangedError, ResolvedSpec
from paceline.api.services.specs.job_words import readable_secrets_warning
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec.job import JobSpec

#: Choices for one submission, while nodes come and go.
ATTEMPTS = 4


async def submit(services: Services, once: OnceOnly, spec: JobSpec, actor: Actor, plan_hash: str | None) -> Job:
    """The submitted job; or, for a repeated request, the answer of the first, for which nothing is chosen again."""
    spec = await packages.with_files_read(services, spec)
    resolved, warnings = ResolvedSpec(spec), await _warnings(services, spec)
    for _ in range(ATTEMPTS):
        try:
            async with services.write(request=True) as session:
                create = functools.partial(_describe_stored, services, session, spec, resolved, actor, plan_hash, warnings)
                return await once.run(session, spec, Job, create)
        except ClusterChangedError:
            resolved = await plan_auto.resolve(services, spec)
    raise ProblemError(
        "busy", f"nodes came or went while a plan was chosen, {ATTEMPTS - 1} times in a row; try again", headers={"Retry-After": "5"}
    )


async def _warnings(services: Services, spec: JobSpec) -> list[str]:
    """What the answer warns of: the job's folder, a folder for checkpoints that its nodes do not share, and secrets that all can read."""
    found = [readable_secrets_warning(spec)]
    if names_a_file(spec) or spec.checkpoint.directory is not None:
        async with services.control.read() as session:
            nodes = await node_rows.present(session)
        found += [*await services.folders.warnings(spec, nodes), shared_folder.named_folder_warning(spec, nodes)]
    return [warning for warning in found if warning]


async def _describe_stored(
    services: Services,
    session: AsyncSession,
    asked: JobSpec,
    resolved: ResolvedSpec,
    actor: Actor,
    plan_hash: str | None,
    warnings: list[str],
) -> Job:
    now = services.now()
    if plan_hash is not None:
        await plan_auto.check_cluster_profile(session, asked, resolved)
        await plan.check_unchanged(session, resolved, plan_hash, now)
    job = await store(session, asked, resolved, actor, now)
    return (await descriptions.describe_new(session, job, resolved.choice, now)).model_copy(update={"warnings": warnings})


async def store(session: AsyncSession, asked: JobSpec, resolved: ResolvedSpec, actor: Actor, now: datetime) -> JobRow:
    """Store a job in the caller's transaction; trials of experiments come this way too.

    Raises ClusterChangedError where its plan is to be chosen again, and a ProblemError where the job could not start."""
    await plan_auto.check_cluster_profile(session, asked, resolved)
    await check(session, resolved.spec)
    job = await job_lifecycle.submit(session, resolved.spec, actor, now)
    if resolved.choice is not None:
        await plan_auto.record(session, job, resolved.choice, now)
    return job


async def continue_from(session: AsyncSession, checkpoint: CheckpointRow, spec: JobSpec, actor: Actor, now: datetime) -> JobRow:
    """Store a job that goes on from a checkpoint, in the caller's transaction. Raises a ProblemError where the job could not start."""
    await check(session, spec)
    return await job_lifecycle.submit(session, spec, actor, now, restored_from=checkpoint)


async def check(session: AsyncSession, spec: JobSpec) -> None:
    """Raise a ProblemError where code, secrets, programs of nodes or a shared folder are missing that the job cannot start without."""
    await bundles.require(session, spec)
    packages.require_read(spec)
    await node_tools.check(session, spec)
    await secrets.require(session, spec)
    await shared_folder.check(session, spec)
