"""Deletes checkpoints that each job's policy no longer keeps; the node that wrote one removes its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.loops.isolation import Turns
from api.services import checkpoint_lifecycle
from api.services.checkpoints import policy_of, views_of
from api.services.identity import SYSTEM
from api.services.progress import not_finite_step
from api.services.stored_specs import why_unreadable
from api.services.troubles import Subject
from cluster.retention import to_delete
from cluster.states import CheckpointState, NodeState
from db.repositories import checkpoints as checkpoint_rows
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows

INTERVAL_SECONDS = 30.0


@dataclass
class Retention:
    """Looks only at jobs whose checkpoints, or the jobs started from them, have changed since it found nothing more to delete."""

    services: Services
    _looked_at: dict[str, checkpoint_rows.Mark] = field(default_factory=dict)

    async def step_once(self, now: datetime) -> None:
        async with self.services.control.read() as session:
            marks = await checkpoint_rows.marks(session)
            orphans = await checkpoint_rows.being_deleted(session)
        self._looked_at = {job_id: mark for job_id, mark in self._looked_at.items() if job_id in marks}
        turns = Turns(self.services, "delete the checkpoints that it does not keep", now)
        for job_id in [job_id for job_id, mark in marks.items() if self._looked_at.get(job_id) != mark]:
            done = await turns.take(Subject("job", job_id), partial(_look_at, self.services, job_id, now))
            if done is False:
                self._looked_at[job_id] = marks[job_id]
        self.services.troubles.forget_all_but(turns.task, marks)
        if orphans:
            await _hand_over(self.services)


async def step_once(services: Services, now: datetime) -> None:
    """One step that looks at every job."""
    await Retention(services).step_once(now)


async def _look_at(services: Services, job_id: str, now: datetime) -> bool:
    """Whether there was something to delete."""
    async with services.control.read() as session:
        doomed = await _doomed(session, job_id)
    if doomed:
        async with services.write() as session:
            await _retire(session, job_id, now)
    return bool(doomed)


async def _doomed(session: AsyncSession, job_id: str) -> list[str]:
    """None of a job whose policy cannot be read: what is kept can be deleted by hand, and not the other way round."""
    job = await job_rows.get(session, job_id)
    if job is None or why_unreadable(job):
        return []
    rows = await checkpoint_rows.present_of_job(session, job_id)
    return [each.id for each in to_delete(await views_of(session, rows), policy_of(job), not_finite_step(job.progress, job.generation))]


async def _retire(session: AsyncSession, job_id: str, now: datetime) -> None:
    job = await job_rows.get_locked(session, job_id)
    assert job is not None, f"job {job_id} has checkpoints and no row"
    policy = policy_of(job)
    why = f"the policy keeps the last {policy.keep_last} and the best {policy.keep_best}"
    for checkpoint_id in await _doomed(session, job_id):
        checkpoint = await checkpoint_rows.get_locked(session, checkpoint_id)
        if checkpoint is not None and not checkpoint.pinned:
            await checkpoint_lifecycle.move(session, checkpoint, CheckpointState.DELETING, SYSTEM, why, now)


async def _hand_over(services: Services) -> None:
    """What a gone node can no longer delete, a ready one does; where it does not see the folder, there is nothing left."""
    async with services.write() as session:
        nodes = {node.id: node for node in await node_rows.present(session)}
        ready = next((node.id for node in nodes.values() if node.state is NodeState.READY), None)
        for checkpoint in await checkpoint_rows.being_deleted(session):
            if checkpoint.node_id not in nodes and ready is not None:
                await checkpoint_lifecycle.hand_over_deletion(session, checkpoint, ready)
