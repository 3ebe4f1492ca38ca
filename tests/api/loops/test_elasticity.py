"""What the loop that lets gangs grow does with what it has read a moment ago: on both databases, the time as an argument."""

from __future__ import annotations

from sqlalchemy import select, update

from paceline.api.loops.elasticity import Elasticity
from paceline.api.services.scheduling.job_snapshots import load
from paceline.cluster.states import RankState
from paceline.db.models.jobs import RankRow
from tests.api.loops.grown_pool import Grown


async def test_a_rank_that_has_ended_since_leaves_its_slot_to_no_newcomer_of_its_job(grown: Grown) -> None:
    """The slot of a job's last rank was free a moment before the job had completed, and a rank was started there for nothing."""
    await grown.apply(min_nodes=1)
    await grown.step()
    await grown.step()
    nodes = await grown.join_all()
    job = await grown.submit(resources={"slots": 4, "min_slots": 2}, parallelism={"strategy": "ddp"})
    await grown.run_on(job, nodes)
    async with grown.services.control.read() as session:
        known = await load(session, grown.services.uptime.since)
    assert [each.can_change_members() for each in known] == [True]
    async with grown.services.write() as session:
        await session.execute(update(RankRow).where(RankRow.job_id == job.id, RankRow.rank == 0).values(state=RankState.EXITED))
    await Elasticity(grown.services).step_once(grown.now, known)
    async with grown.services.control.read() as session:
        found = (await session.scalars(select(RankRow.state).where(RankRow.job_id == job.id).order_by(RankRow.rank))).all()
    assert list(found) == [RankState.EXITED, RankState.RUNNING]
