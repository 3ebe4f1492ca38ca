"""Deletes the records of an ended job: requested once, done by the storage loop, and done again for records that arrive later.

The job itself stays: its spec, how it ended, its generations, incidents, history and, unless asked otherwise, its checkpoints.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.core.identity import SYSTEM
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor
from paceline.api.schemas.storage import DataRemoval
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.checkpoints import checkpoints
from paceline.api.services.lifecycle import events
from paceline.api.services.storage import rollups
from paceline.api.services.storage.keeping import RetentionSweep
from paceline.cluster.states import TERMINAL_JOB_STATES, CheckpointState
from paceline.db.models.storage import DataRemovalRow
from paceline.db.repositories import aged, registry, storage
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import stacks as stack_rows

#: Removals that one pass takes up.
AT_ONCE = 20
BATCH = 50
#: How many jobs whose data was removed one query looks at for late data.
JOBS_LOOKED_AT = 500
#: The way out where one of the checkpoints is needed. The deletion of a job's data has no `confirm`, that of a checkpoint has.
FREE_IT_FIRST = "Nothing of its job was deleted: unpin this checkpoint, or delete it by itself, first"


def describe(row: DataRemovalRow) -> DataRemoval:
    return DataRemoval(
        job_id=row.job_id,
        state="removing" if row.done_at is None else "removed",
        asked_by=row.asked_by,
        asked_at=row.asked_at,
        checkpoints=row.checkpoints,
        removed_at=row.done_at,
        removed_bytes=row.bytes,
    )


async def of_job(session: AsyncSession, job_id: str) -> DataRemoval | None:
    row = await aged.removal(session, job_id)
    return None if row is None else describe(row)


async def ask(session: AsyncSession, job_id: str, actor: Actor, now: datetime, *, with_checkpoints: bool) -> DataRemoval:
    """Request a removal. Asking again is harmless. Raises job_not_ended, and checkpoint_in_use where a job depends on a checkpoint that
    would go."""
    job = await job_rows.get_locked(session, job_id)
    if job is None:
        raise not_found("job", job_id)
    if job.state not in TERMINAL_JOB_STATES:
        raise ProblemError(
            "job_not_ended", f"job {job.name} is {job.state.value}; its data can be deleted once it has ended: cancel it, or wait for it"
        )
    if models := await registry.from_files_of_job(session, job_id):
        raise ProblemError(
            "model_in_use", f"files of job {job.name} are {', '.join(models)} in the registry of models: delete those versions first"
        )
    if with_checkpoints:
        for checkpoint_id in await _lock_checkpoints(session, job_id):
            await checkpoints.delete(session, checkpoint_id, actor, now, way_out=FREE_IT_FIRST)
    row = await aged.removal(session, job_id)
    if row is None or (with_checkpoints and not row.checkpoints):
        await _record(session, job_id, "job.data_unwanted", actor, f"{actor.name} asked for it", _asked(with_checkpoints), now)
    if row is None:
        row = DataRemovalRow(job_id=job_id, asked_by=actor.name, asked_at=now, checkpoints=with_checkpoints, bytes=0)
        session.add(row)
    row.checkpoints = row.checkpoints or with_checkpoints
    await stack_rows.forget(session, job_id)
    await session.flush()
    nudge_after_commit(session, bus.STORAGE)
    return describe(row)


def _asked(with_checkpoints: bool) -> str:
    also = " and its checkpoints" if with_checkpoints else ""
    return f"its points, curves, log lines, traces, gradients, media and files{also} are deleted"


async def _lock_checkpoints(session: AsyncSession, job_id: str) -> list[str]:
    """Lock the checkpoints that are still to be deleted, then the nodes that will be told, in id order: before the first event, whose lock on the
    history others wait for. Returns the ids."""
    present = await checkpoint_rows.present_of_job(session, job_id)
    found = [each.id for each in present if each.state is not CheckpointState.DELETING]
    locked = [await checkpoint_rows.get_locked(session, checkpoint_id) for checkpoint_id in found]
    await node_rows.lock(session, {each.node_id for each in locked if each is not None})
    return found


async def carry_out(sweep: RetentionSweep) -> None:
    """Carry out as much of the requests as the pass has time for. Points whose roll-ups are still to be made would stay, so those come
    first. However many requests cannot be carried out, they hold up no other."""
    with sweep.turns("delete its data, as was asked for") as turns:
        async with sweep.services.control.read() as session:
            wanted = await aged.open_removals(session, AT_ONCE + len(sweep.services.troubles.failed(turns.task)))
        if wanted:
            await rollups.refresh(sweep.services, sweep.pace, sweep.now)
        for row in wanted:
            if sweep.pace.over:
                break
            await turns.take(row.job_id, partial(_carry_out, sweep, row.job_id, f"{row.asked_by} asked for it"))


async def _carry_out(sweep: RetentionSweep, job_id: str, why: str) -> bool:
    """Carry one request out as far as the pass has time. Returns whether nothing is left."""
    services = sweep.services
    finished = await sweep.drop_everything(job_id, why)
    gone = sum(lost.bytes for (job, _), lost in sweep.losses.items() if job == job_id)
    sweep.forget(job_id)  # the end of it is told below
    removed, left = await _remove_files(sweep, job_id)
    gone += removed
    async with services.write() as session:
        row = await aged.removal(session, job_id)
        assert row is not None, f"the removal of job {job_id} is gone"
        row.bytes += gone
        if finished and not left:
            row.done_at = sweep.now
            await _record(session, job_id, "job.data_removed", SYSTEM, why, f"its data was removed: {why}", sweep.now)
    return finished and not left


async def _remove_files(sweep: RetentionSweep, job_id: str) -> tuple[int, bool]:
    """Remove files for as long as the pass lasts. Returns their bytes, and whether any are left."""
    gone = 0
    while True:
        async with sweep.services.control.read() as session:
            files = await aged.artifacts_of(session, job_id, BATCH)
        for file in files:
            await stored_artifacts.remove(sweep.services, file)
            gone += file.bytes
        if len(files) < BATCH or sweep.pace.over:
            return gone, len(files) == BATCH


async def remove_late_data(services: Services) -> None:
    """Remove records that arrived late: a node that was away may send those of a job whose data was removed."""
    async with services.control.read() as session:
        removed = await aged.jobs_removed(session)
    for first in range(0, len(removed), JOBS_LOOKED_AT):
        async with services.metrics.read() as session:
            late = await storage.with_data(session, removed[first : first + JOBS_LOOKED_AT])
        if late:
            async with services.write() as session:
                for row in await aged.removals_of(session, late):
                    row.done_at = None


async def _record(session: AsyncSession, job_id: str, type: str, actor: Actor, cause: str, message: str, now: datetime) -> None:
    await events.record(session, type=type, actor=actor, cause=cause, message=message, job_id=job_id, time=now)
