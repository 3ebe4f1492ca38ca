"""What the autoscaler reads of jobs that lack ranks: on both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from paceline.api.core.context import Services
from paceline.api.services.scheduling.growing_jobs import ScaleUpMemory, read_growing, survives_interruption
from paceline.cluster.autoscaling.facts import GrowingGang
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from paceline.db.models.jobs import GenerationRow, RankRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec.job import JobSpec
from tests import factories

GROWS = {"resources": {"slots": 4, "min_slots": 1}, "parallelism": {"strategy": "ddp"}}
SCRIPT = JobSpec.model_validate({"name": "s", "script": {"path": "train.py"}, "resources": {"nodes": 3, "min_nodes": 1}})
NOW = factories.START


async def running(services: Services, code: str | None, **columns: Any) -> str:
    """A job with one of its four ranks, on a node whose agent is there. Returns its id."""
    spec = columns.pop("spec", None) or factories.job_spec(**GROWS)
    async with services.write() as session:
        node, _ = await factories.create_node(session, slots=1, channel_id="here")
        job = await factories.create_job(session, spec=spec)
        job.state, job.generation, job.desired = JobState.RUNNING, 1, Intent.RUN
        job.pending = {"code": code, "text": "runs with 1 of 4 ranks"} if code else None
        for name, value in columns.items():
            setattr(job, name, value)
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=1, started_at=NOW, store_token="t"))
        await session.flush()
        place = {"node_id": node.id, "slot": 0, "local_rank": 0, "node_rank": 0}
        session.add(RankRow(job_id=job.id, generation=1, rank=0, **place, state=RankState.RUNNING, updated_at=NOW))
    return job.id


async def look(services: Services, memory: ScaleUpMemory, seconds: float = 0.0) -> list[GrowingGang]:
    async with services.control.read() as session:
        return await read_growing(session, memory, await node_rows.present(session), NOW + timedelta(seconds=seconds))


async def test_a_job_lacks_ranks_from_when_it_is_first_seen_without_room(services: Services) -> None:
    job_id = await running(services, "no_room_to_grow")
    memory = ScaleUpMemory()
    (found,) = await look(services, memory)
    assert (found.why, found.sizes, found.retry_at) == ("runs with 1 of 4 ranks", (3, 2, 1), None)
    (found,) = await look(services, memory, 20)
    assert found.job.request.queued_at == NOW
    memory.note_tries([job_id], NOW + timedelta(seconds=20))
    (found,) = await look(services, memory, 22)
    assert found.retry_at == NOW + timedelta(seconds=620)


async def test_a_job_that_lacks_nothing_or_that_has_room_is_none(services: Services) -> None:
    await running(services, None)
    assert await look(services, ScaleUpMemory()) == []


async def test_a_job_whose_joiners_failed_where_there_is_room_is_none(services: Services) -> None:
    await running(services, "cannot_join")
    assert await look(services, ScaleUpMemory()) == []


async def test_joiners_that_end_at_one_moment_come_in_the_order_of_their_ranks(services: Services) -> None:
    """Failures before one that joined do not count: of those that ended together chance decided which these are."""
    job_id = await running(services, "cannot_join")
    async with services.write() as session:
        (lead,) = (await job_rows.ranks(session, [(job_id, 1)]))[job_id, 1]
        for rank in (3, 2, 1):
            place = {"node_id": lead.node_id, "slot": rank, "local_rank": rank, "node_rank": 0}
            session.add(RankRow(job_id=job_id, generation=1, rank=rank, **place, state=RankState.EXITED, newcomer=True, updated_at=NOW))
            await session.flush()
        found = await job_rows.joiners(session, [job_id], NOW - timedelta(seconds=1))
    assert [rank.rank for rank, _ in found] == [1, 2, 3]


async def test_a_job_that_ends_is_none(services: Services) -> None:
    await running(services, "no_room_to_grow", desired=Intent.CANCEL)
    assert await look(services, ScaleUpMemory()) == []


async def test_idle_nodes_are_kept_for_a_script_that_starts_again_on_more(services: Services) -> None:
    """They could be drained while its ranks took their time to save."""
    await running(services, None, spec=SCRIPT, state=JobState.STOPPING, end_reason=EndReason.RESIZED)
    (found,) = await look(services, ScaleUpMemory())
    assert (found.restarting, found.sizes) == (True, (3, 2, 1))
    assert survives_interruption(SCRIPT)
