"""Secrets of projects: set, listed without their values, deleted, and handed to the nodes that run a job which names them.

Members set and use the secrets of every project; to replace or delete another's takes its owner or an admin. A value leaves this module towards the
agent of a node that has ranks of the job, and in no other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import vault as vaults
from paceline.api.core.context import Services
from paceline.api.core.identity import Caller
from paceline.api.core.vault import NoSuchKeyError, SealDamagedError, Vault, VaultKeyError
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.secrets import Secret
from paceline.api.services.jobs import ownership
from paceline.api.services.lifecycle import events
from paceline.api.settings import Settings
from paceline.cluster.protocol import JobSecrets
from paceline.cluster.states import TERMINAL_JOB_STATES
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.secrets import SecretRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import rank_marks
from paceline.db.repositories import secrets as rows
from paceline.training.schema.environment import is_set_by_paceline
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec

#: The most secrets of one project.
MOST_SECRETS = 200


def describe(row: SecretRow) -> Secret:
    return Secret.model_validate({name: getattr(row, name) for name in Secret.model_fields})


def place_of(project: str, name: str) -> tuple[str, str, str]:
    """The place that a value is sealed for."""
    return ("secret", project, name)


async def listed(session: AsyncSession, project: str | None) -> list[Secret]:
    return [describe(row) for row in await rows.of_project(session, project)]


async def put(
    session: AsyncSession, vault: Vault, caller: Caller, project: str, name: str, value: str, settings: Settings, now: datetime
) -> Secret:
    """Set a secret. Its former value is retired."""
    if is_set_by_paceline(name):
        raise ProblemError(
            "invalid_request", f"{name} is a variable that Paceline itself sets for each rank; take another name, such as MY_{name}"
        )
    sealed = await vaults.seal(session, vault, value, *place_of(project, name))
    former = await rows.current(session, project, name)
    if former is not None:
        ownership.require_owner_or_admin_of(caller, "secret", former, settings, "replace it")
        former.retired_at = now
        await session.flush()
    elif len(await rows.of_project(session, project)) >= MOST_SECRETS:
        raise ProblemError("invalid_request", f"project {project} has {MOST_SECRETS} secrets, which is the limit; delete one first")
    row = SecretRow(
        project=project,
        name=name,
        sealed=sealed,
        created_by=caller.name if former is None else former.created_by,
        created_by_id=caller.user_id if former is None else former.created_by_id,
        created_at=now if former is None else former.created_at,
        updated_by=caller.name,
        updated_at=now,
    )
    session.add(row)
    await session.flush()
    await _record(session, caller, row, "secret.set", "set" if former is None else "replaced", now)
    return describe(row)


async def delete(session: AsyncSession, caller: Caller, project: str, name: str, settings: Settings, now: datetime) -> None:
    """Delete a secret. Ranks that run keep their variable; ranks that would start fail, and say why."""
    row = await rows.current(session, project, name)
    if row is None:
        raise not_found(f"secret of project {project}", name)
    ownership.require_owner_or_admin_of(caller, "secret", row, settings, "delete it")
    row.retired_at = now
    await _record(session, caller, row, "secret.deleted", "deleted", now)


async def _record(session: AsyncSession, caller: Caller, row: SecretRow, type_: str, did: str, now: datetime) -> None:
    message = f"{caller.name} {did} the secret {row.name} of project {row.project}"
    data = {"project": row.project, "name": row.name}
    await events.record(session, type=type_, actor=caller.actor, cause="request", message=message, data=data, time=now)


async def require(session: AsyncSession, spec: JobSpec) -> None:
    """Raise a ProblemError unless all secrets that the spec names are there."""
    await _require(session, spec.project, spec.environment.secrets)


async def _require(session: AsyncSession, project: str, names: Sequence[str]) -> None:
    if not names:
        return
    there = [row.name for row in await rows.of_project(session, project)]
    missing = [name for name in names if name not in there]
    if missing:
        known = f"it has {', '.join(there)}" if there else "it has none"
        raise ProblemError(
            "no_secret",
            f"environment.secrets: project {project} has no {', '.join(missing)} ({known}); "
            f"set it with `paceline secret set {missing[0]} --project {project}`",
        )


async def require_movable(session: AsyncSession, job: JobRow, project: str) -> None:
    """Raise a ProblemError where a job cannot be moved to a project: its ranks have values of the former one, by which their output is
    masked, or it has yet to start and names secrets that the new one does not have."""
    former, names = names_of(job.spec)
    if names and await job_rows.nodes_with_open_ranks(session, [job.id]):
        raise ProblemError(
            "invalid_request",
            f"ranks of job {job.name} have secrets of project {former} ({', '.join(names)}): pause or cancel the job, and change its project "
            "once its ranks have ended and sent what they recorded",
        )
    if job.state not in TERMINAL_JOB_STATES:
        await _require(session, project, names)


# --- to agents


def names_of(spec: StoredSpec) -> tuple[str, tuple[str, ...]]:
    """The project of a stored spec, and the secrets that it names, whether or not the rest of it can be read."""
    names = spec.part("environment", "secrets")
    return str(spec.part("project") or "default"), tuple(map(str, names)) if isinstance(names, list) else ()


async def for_node(session: AsyncSession, vault: Vault, node: NodeRow, job_id: str) -> JobSecrets:
    """The values that a node's ranks of a job are given, and those that ranks of it may have been given before. Once its ranks there have ended, these
    are known only where nothing was replaced since. Raises a ProblemError where they are not, where the node has had no ranks of the job, or where the
    key is not here."""
    job = await job_rows.get(session, job_id)
    if job is None or not await rank_marks.ranks_of(session, node.id, {job_id}):
        raise not_found("job on this node", job_id)
    names = names_of(job.spec)[1]
    project = await _project_of_ranks(session, job)
    found = await rows.of_names(session, project, names)
    unchanged = {row.name for row in found if row.retired_at is None and row.updated_at <= job.created_at}
    if unchanged != set(names) and not any(rank.job_id == job_id for rank in await job_rows.open_ranks_of_node(session, node.id)):
        raise not_found("job with ranks on this node", job_id)  # values that its ranks may have had are deleted
    try:
        opened = [(row, vault.open(row.sealed, *place_of(project, row.name))) for row in found]
    except (NoSuchKeyError, SealDamagedError, VaultKeyError, OSError) as error:
        raise ProblemError("secret_key_missing", f"the secrets of project {project} cannot be opened: {error}") from error
    values = {row.name: value for row, value in opened if row.retired_at is None}
    former = tuple(value for row, value in opened if row.retired_at is not None)
    missing = tuple(name for name in names if name not in values)
    return JobSecrets(values=values, former=former, missing=missing, since=await _known_since(session, job, names, found))


async def _known_since(session: AsyncSession, job: JobRow, names: Sequence[str], found: Sequence[SecretRow]) -> int:
    """The first generation of a job whose ranks can have been given no other values than those `found`: of retired ones the oldest are deleted first."""
    if not names:
        return 0
    moments = [min((row.updated_at for row in found if row.name == name), default=None) for name in names]
    known = [moment for moment in moments if moment is not None]
    first = await job_rows.first_generation_since(session, job.id, max(known)) if len(known) == len(moments) else None
    return job.generation + 1 if first is None else first


async def _project_of_ranks(session: AsyncSession, job: JobRow) -> str:
    """The project that the job's newest ranks had their secrets from: they may have ended since, and the job been moved to another one."""
    for edit in await event_rows.edits(session, job.id, job.generation):
        if (moved := edit.data["changes"].get("project")) is not None:
            return str(moved["from"])
    return names_of(job.spec)[0]


# --- housekeeping


async def forget_retired(services: Services, now: datetime) -> None:
    """Delete the retired values that no running rank can have."""
    async with services.control.read() as session:
        gone = [row.id for row in await rows.retired(session) if not _may_be_printed(row, await _open_jobs(session, row))]
    if gone:
        async with services.write() as session:
            for row in await rows.retired(session):
                if row.id in gone:
                    await session.delete(row)


async def _open_jobs(session: AsyncSession, row: SecretRow) -> Sequence[JobRow]:
    assert row.retired_at is not None
    return await rows.open_jobs(session, row.retired_at)


def _may_be_printed(row: SecretRow, jobs: Sequence[JobRow]) -> bool:
    named = [names_of(job.spec) for job in jobs]
    return any(project == row.project and row.name in names for project, names in named)
