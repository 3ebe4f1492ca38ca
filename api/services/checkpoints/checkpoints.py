"""Checkpoints as clients see them, and the actions on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus, lists
from paceline.api.core.context import nudge_after_commit
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.checkpoints import Checkpoint, CheckpointUser, ListedCheckpoint, RestoreRequest
from paceline.api.schemas.common import Actor
from paceline.api.services.ingest.progress import spoilt_since
from paceline.api.services.lifecycle import checkpoint_lifecycle
from paceline.api.services.specs.specs import parse_spec
from paceline.api.services.specs.stored_specs import spec_of, why_unreadable
from paceline.cluster.policy.retention import CheckpointView, best, to_delete_next, verified
from paceline.cluster.states import TERMINAL_JOB_STATES, CheckpointState
from paceline.db.models.checkpoints import KEPT_STATES, CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import registry
from paceline.training.schema.checkpoint import CheckpointPolicy
from paceline.training.spec.job import JobSpec


def policy_of(job: JobRow) -> CheckpointPolicy:
    """The retention policy of a job. Raises `UnreadableSpecError`."""
    return spec_of(job).checkpoint


def store_options(job: JobRow) -> dict[str, str]:
    """Where the object store of a job's checkpoints is, as far as its spec says."""
    return dict(job.spec.part("checkpoint", "options") or {})


async def views_of(session: AsyncSession, rows: Sequence[CheckpointRow]) -> list[CheckpointView]:
    users = await checkpoint_rows.users_of(session, [row.id for row in rows])
    return [
        CheckpointView(
            id=row.id,
            step=row.step,
            generation=row.generation,
            state=row.state,
            metrics={name: float(value) for name, value in row.metrics.items()},
            pinned=row.pinned,
            referenced=bool(users.get(row.id)),
        )
        for row in rows
    ]


async def not_finite_since(session: AsyncSession, job: JobRow) -> int | None:
    """The first step whose loss was not finite, of the state that the job goes on with."""
    newest = await job_rows.generation(session, job.id, job.generation)
    return spoilt_since(job.progress, job.generation, newest.start_step if newest else 0)


async def describe(session: AsyncSession, rows: Sequence[CheckpointRow]) -> list[Checkpoint]:
    """Checkpoints as clients see them. `rows` are of one job."""
    if not rows:
        return []
    job = await job_rows.get(session, rows[0].job_id)
    assert job is not None, f"checkpoints of unknown job {rows[0].job_id}"
    views = await views_of(session, await checkpoint_rows.present_of_job(session, job.id))
    users = await checkpoint_rows.users_of(session, [row.id for row in rows])
    not_finite = await not_finite_since(session, job)
    latest, champion, doomed = _retention_state(views, None if why_unreadable(job) else policy_of(job), not_finite)
    return [
        Checkpoint(
            id=row.id,
            job_id=row.job_id,
            step=row.step,
            generation=row.generation,
            state=row.state,
            directory=row.directory,
            bytes=row.bytes,
            manifest_sha256=row.manifest_sha256,
            parameters_sha256=row.parameters_sha256,
            metrics={name: float(value) for name, value in row.metrics.items()},
            stall_seconds=row.stall_seconds,
            write_seconds=row.write_seconds,
            slowdown=row.slowdown,
            best=row.id in champion,
            latest=row.id in latest,
            pinned=row.pinned,
            deleted_next=row.id in doomed,
            used_by=[CheckpointUser(job_id=job_id, job_name=name) for job_id, name in users.get(row.id, [])],
            damage=row.damage,
            created_at=row.created_at,
        )
        for row in rows
    ]


def _retention_state(
    views: Sequence[CheckpointView], policy: CheckpointPolicy | None, not_finite_step: int | None
) -> tuple[list[str], list[str], set[str]]:
    """(the latest, the best, those that go next); None: the policy cannot be read, so the best is unknown, and nothing goes."""
    latest = [view.id for view in verified(views)[:1]]
    if policy is None:
        return latest, [], set()
    return latest, [view.id for view in best(views, policy)[:1]], {view.id for view in to_delete_next(views, policy, not_finite_step)}


async def describe_listed(session: AsyncSession, rows: Sequence[tuple[CheckpointRow, JobRow]]) -> dict[str, ListedCheckpoint]:
    """Checkpoints of many jobs by id, as clients see them."""
    by_job: dict[str, list[CheckpointRow]] = {}
    for row, job in rows:
        by_job.setdefault(job.id, []).append(row)
    described = {each.id: each for mine in by_job.values() for each in await describe(session, mine)}
    return {
        row.id: ListedCheckpoint(
            **described[row.id].model_dump(),
            job_name=job.name,
            job_state=job.state,
            created_by=job.created_by,
            created_by_id=job.created_by_id,
        )
        for row, job in rows
    }


def parse_states(text: str | None) -> tuple[CheckpointState, ...]:
    """The states that are asked for; without any, those of checkpoints that are on disk."""
    return tuple(map(CheckpointState, lists.members("state", text, list(CheckpointState)) or checkpoint_rows.PRESENT))


async def describe_one(session: AsyncSession, row: CheckpointRow) -> Checkpoint:
    return (await describe(session, [row]))[0]


async def find(session: AsyncSession, checkpoint_id: str, *, lock: bool = False) -> CheckpointRow:
    row = await (checkpoint_rows.get_locked if lock else checkpoint_rows.get)(session, checkpoint_id)
    if row is None:
        raise not_found("checkpoint", checkpoint_id)
    return row


async def pin(session: AsyncSession, checkpoint_id: str, pinned: bool, actor: Actor, now: datetime) -> CheckpointRow:
    row = await find(session, checkpoint_id, lock=True)
    if row.state not in KEPT_STATES:
        act = "pin" if pinned else "unpin"
        raise ProblemError(
            "checkpoint_not_usable", f"checkpoint {row.id} of step {row.step} is {row.state.value}; there is nothing left to {act}"
        )
    if not pinned:
        await _require_no_model(session, row)
    elif row.pinned:  # by a version of a model, maybe: it stays pinned when that one is deleted
        for version in await registry.versions_of_checkpoint(session, row.id):
            version.pinned_before = True
    if row.pinned is not pinned:
        await checkpoint_lifecycle.pin(session, row, pinned, actor, now)
        nudge_after_commit(session, bus.RETENTION)
    return row


async def delete(
    session: AsyncSession,
    checkpoint_id: str,
    actor: Actor,
    now: datetime,
    *,
    confirm: bool = False,
    way_out: str = "To delete it all the same, repeat with confirm=true",
) -> CheckpointRow:
    """Delete a checkpoint. Deleting twice is harmless. One that a job depends on needs `confirm`; the refusal names the job and the `way_out`."""
    row = await find(session, checkpoint_id, lock=True)
    if row.state in (CheckpointState.DELETING, CheckpointState.DELETED):
        return row
    await _require_no_model(session, row)
    dependants = await _dependants(session, row)
    if dependants and not confirm:
        raise ProblemError(
            "checkpoint_in_use",
            f"checkpoint {row.id} of step {row.step}: {'; '.join(dependants)}. {way_out}",
        )
    await checkpoint_lifecycle.move(session, row, CheckpointState.DELETING, actor, f"{actor.name} asked for it", now)
    return row


async def _require_no_model(session: AsyncSession, row: CheckpointRow) -> None:
    if models := await registry.holders(session, checkpoint_id=row.id):
        raise ProblemError(
            "model_in_use",
            f"checkpoint {row.id} of step {row.step} is {', '.join(models)} in the registry of models: delete that version first",
        )


async def _dependants(session: AsyncSession, row: CheckpointRow) -> list[str]:
    users = (await checkpoint_rows.users_of(session, [row.id])).get(row.id, [])
    reasons = [f"job {name} ({job_id}) was started from it" for job_id, name in users]
    job = await job_rows.get(session, row.job_id)
    views = await views_of(session, await checkpoint_rows.present_of_job(session, row.job_id))
    newest = next((view.id for view in verified(views)), None)
    if job is not None and job.state not in TERMINAL_JOB_STATES and newest == row.id:
        reasons.append(f"it is the newest one of job {job.name}, which is {job.state.value} and would continue from it")
    if row.pinned:
        reasons.append("it is pinned")
    return reasons


async def restored_spec(session: AsyncSession, row: CheckpointRow, request: RestoreRequest) -> JobSpec:
    """The spec of the new job. Raises a problem when the checkpoint cannot be continued from."""
    job = await job_rows.get(session, row.job_id)
    assert job is not None, f"checkpoint {row.id} of unknown job"
    if row.state not in (CheckpointState.COMMITTED, CheckpointState.SUPERSEDED):
        why = f": {row.damage}" if row.damage else ""
        raise ProblemError("checkpoint_not_usable", f"checkpoint {row.id} of step {row.step} is {row.state.value}{why}; choose another one")
    document = dict(job.spec.document)
    document["name"] = request.name or f"{job.name[:54]}-restored"
    if request.steps is not None:
        document["training"] = {**(document["training"] or {}), "steps": request.steps, "epochs": None, "pause_at_steps": None}
    spec = parse_spec(document)
    steps = spec.training.steps if spec.training else None
    if steps is None and spec.training is not None:  # of `epochs`: its ranks have told how many steps these are
        steps = (job.progress or {}).get("total_steps")
    if steps is not None and steps <= row.step:
        raise ProblemError(
            "checkpoint_not_usable",
            f"the checkpoint is of step {row.step} and the job ends at step {steps}: nothing is left to train; pass steps above {row.step}",
        )
    return spec
