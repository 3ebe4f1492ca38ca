"""Jobs as read at the start of a scheduler's pass, and whether a placement that was decided on them still holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from api.services.job_views import job_view
from cluster.culprits import is_awaited
from cluster.decide import decide, wants_slots
from cluster.placement import NodeShare
from cluster.states import NodeState
from cluster.views import Decision, JobView
from db.models.jobs import GenerationRow, JobRow, RankRow
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows


@dataclass(frozen=True)
class Known:
    """One undecided job."""

    job: JobRow
    generation: GenerationRow | None
    ranks: Sequence[RankRow]  # the parked ones too
    silent: Collection[str]  # nodes
    draining: Collection[str]  # nodes

    @property
    def view(self) -> JobView:
        return job_view(self.job, self.generation, self.ranks, self.silent, self.draining)

    @property
    def members(self) -> list[RankRow]:
        return [rank for rank in self.ranks if not rank.parked]

    def decide(self, now: datetime) -> Decision | None:
        """None: nothing, or not yet."""
        decision = decide(self.view, now)
        return None if decision is None or is_awaited(self.view, decision, now) else decision

    def wants_slots(self, now: datetime) -> bool:
        return wants_slots(self.view, now)


async def load(session: AsyncSession) -> list[Known]:
    return await _known(session, await job_rows.undecided(session))


async def load_locked(session: AsyncSession, job_id: str) -> Known | None:
    """One of them as it stays until the commit: agents' reports of its ranks wait. None: it is gone. What the transaction does to
    the ranks does not show in these."""
    job = await job_rows.get_locked(session, job_id)
    if job is None:
        return None
    await lock_ranks(session, job)
    (known,) = await _known(session, [job])
    for rank in known.ranks:
        session.expunge(rank)
    return known


async def lock_ranks(session: AsyncSession, job: JobRow) -> None:
    """To be called before they are read: what a report changed would be overwritten, or overwrite what follows from it."""
    await node_rows.lock(session, await job_rows.nodes_with_open_ranks(session, job.id))


async def _known(session: AsyncSession, jobs: Sequence[JobRow]) -> list[Known]:
    keys = [(job.id, job.generation) for job in jobs if job.generation]
    generations, ranks = await job_rows.generations(session, keys), await job_rows.ranks(session, keys)
    silent, draining = await node_rows.silent(session), await node_rows.draining(session)
    return [
        Known(job, generations.get((job.id, job.generation)), ranks.get((job.id, job.generation), []), silent, draining) for job in jobs
    ]


async def still_free(session: AsyncSession, shares: Sequence[NodeShare]) -> bool:
    """A node may have been cordoned since the snapshot; and where we stalled, another replica may have given the same slots. The
    locks on the nodes keep the answer true until the commit."""
    for share in sorted(shares, key=lambda share: (share.node_id, share.slots)):
        node = await node_rows.get_locked(session, share.node_id)
        if node is None or node.state is not NodeState.READY:
            return False
        if {rank.slot for rank, _ in await job_rows.holders(session, share.node_id)} & set(share.slots):
            return False
    return True
