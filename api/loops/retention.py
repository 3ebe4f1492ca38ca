"""Deletes checkpoints that each job's policy no longer keeps; the node that wrote one removes its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.core.troubles import Subject
from paceline.api.services.checkpoints.checkpoints import not_finite_since, policy_of, views_of
from paceline.api.services.lifecycle import checkpoint_lifecycle
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.specs.stored_specs import why_unreadable
from paceline.cluster.policy.retention import to_delete
from paceline.cluster.states import CheckpointState, NodeState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.objects.location import is_url

INTERVAL_SECONDS = 30.0
#: An agent tries to delete from an object store for so long, before another one gets it.
TURN = timedelta(minutes=5)


@dataclass(frozen=True)
class CheckpointHolder:
    """The node that is to delete a checkpoint, and since when."""

    node_id: str
    since: datetime


@dataclass
class Retention:
    """Looks only at jobs whose checkpoints, or the jobs started from them, have changed since it found nothing more to delete."""

    services: Services
    _looked_at: dict[str, checkpoint_rows.Mark] = field(default_factory=dict)
    _holders: dict[str, CheckpointHolder] = field(default_factory=dict)  # by checkpoint that is being deleted

    async def step_once(self, now: datetime) -> None:
        async with self.services.control.read() as session:
            marks = await checkpoint_rows.marks(session)
            orphans = await checkpoint_rows.being_deleted(session)
        self._looked_at = {job_id: mark for job_id, mark in self._looked_at.items() if job_id in marks}
        turns = PhaseTurns(self.services, "delete the checkpoints that it does not keep", now)
        for job_id in [job_id for job_id, mark in marks.items() if self._looked_at.get(job_id) != mark]:
            deleted_some = await turns.take(Subject("job", job_id), partial(_delete_superfluous, self.services, job_id, now))
            if deleted_some is False:  # None: it raised, and is looked at again
                self._looked_at[job_id] = marks[job_id]
        self.services.troubles.forget_all_but(turns.task, marks)
        self._holders = {each.id: self._holders.get(each.id, CheckpointHolder(each.node_id, now)) for each in orphans}
        if orphans:
            await self._reassign(now)

    async def _reassign(self, now: datetime) -> None:
        """Give deletions of gone nodes to ready ones; where a node does not see the folder, there is nothing left. What is in an object store any node
        with its credentials may delete: a lost one is not waited for, and ready ones get it in turn, since an agent does not say that it has none."""
        async with self.services.write() as session:
            nodes = {node.id: node for node in await node_rows.present(session)}
            ready = sorted(node.id for node in nodes.values() if node.state is NodeState.READY)
            moves: list[tuple[CheckpointRow, str]] = []
            for checkpoint in await checkpoint_rows.being_deleted(session):
                holder = self._holders.get(checkpoint.id)
                if holder is None or holder.node_id != checkpoint.node_id:
                    self._holders[checkpoint.id] = holder = CheckpointHolder(checkpoint.node_id, now)
                is_over = now - holder.since >= TURN and is_url(checkpoint.directory)
                following = next((each for each in ready if each > holder.node_id), ready[0] if ready else holder.node_id)
                if following != holder.node_id and (is_over or _has_left(nodes.get(holder.node_id), checkpoint)):
                    moves.append((checkpoint, following))
            if moves:
                await node_rows.lock(session, {following for _, following in moves})
            for checkpoint, following in moves:
                await checkpoint_lifecycle.reassign_deletion(session, checkpoint, following)
                self._holders[checkpoint.id] = CheckpointHolder(following, now)


async def step_once(services: Services, now: datetime) -> None:
    """One step that looks at every job."""
    await Retention(services).step_once(now)


async def _delete_superfluous(services: Services, job_id: str, now: datetime) -> bool:
    """Mark the checkpoints of a job that its policy does not keep. Returns whether there were any."""
    async with services.control.read() as session:
        superfluous = await _superfluous_of(session, job_id)
    if superfluous:
        async with services.write() as session:
            await _retire(session, job_id, now)
    return bool(superfluous)


async def _superfluous_of(session: AsyncSession, job_id: str) -> list[str]:
    """The checkpoints to delete. None of a job whose policy cannot be read: a kept checkpoint can be deleted by hand, and not the other
    way round."""
    job = await job_rows.get(session, job_id)
    if job is None or why_unreadable(job):
        return []
    rows = await checkpoint_rows.present_of_job(session, job_id)
    return [each.id for each in to_delete(await views_of(session, rows), policy_of(job), await not_finite_since(session, job))]


async def _retire(session: AsyncSession, job_id: str, now: datetime) -> None:
    job = await job_rows.get_locked(session, job_id)
    assert job is not None, f"job {job_id} has checkpoints and no row"
    policy = policy_of(job)
    why = f"the policy keeps the last {policy.keep_last} and the best {policy.keep_best}"
    going: list[CheckpointRow] = []
    for checkpoint_id in await _superfluous_of(session, job_id):
        checkpoint = await checkpoint_rows.get_locked(session, checkpoint_id)
        if checkpoint is None or checkpoint.pinned or await checkpoint_rows.users_of(session, [checkpoint_id]):
            continue  # since it was looked at: its row was waited for
        going.append(checkpoint)
    await node_rows.lock(session, {each.node_id for each in going})
    for checkpoint in going:
        await checkpoint_lifecycle.move(session, checkpoint, CheckpointState.DELETING, SYSTEM, why, now)


def _has_left(node: NodeRow | None, checkpoint: CheckpointRow) -> bool:
    return node is None or (is_url(checkpoint.directory) and node.state in (NodeState.LOST, NodeState.UNREACHABLE))
