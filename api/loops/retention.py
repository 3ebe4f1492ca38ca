"""Deletes checkpoints that each job's policy no longer keeps; the node that wrote one removes its folder."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.services import checkpoint_lifecycle
from api.services.checkpoints import policy_of, views_of
from api.services.identity import SYSTEM
from cluster.retention import to_delete
from cluster.states import CheckpointState, NodeState
from db.repositories import checkpoints as checkpoint_rows
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows

INTERVAL_SECONDS = 30.0


async def step_once(services: Services, now: datetime) -> None:
    async with services.control.read() as session:
        job_ids = [job_id for job_id in await checkpoint_rows.jobs_with_any(session) if await _doomed(session, job_id)]
        orphans = [each.id for each in await checkpoint_rows.being_deleted(session)]
    for job_id in job_ids:
        async with services.write() as session:
            await _retire(session, job_id, now)
    if orphans:
        await _hand_over(services)


async def _doomed(session: AsyncSession, job_id: str) -> list[str]:
    job = await job_rows.get(session, job_id)
    if job is None:
        return []
    rows = await checkpoint_rows.present_of_job(session, job_id)
    return [each.id for each in to_delete(await views_of(session, rows), policy_of(job))]


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
