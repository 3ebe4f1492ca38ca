"""When a generation took its first step, told by its own first record."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx

from api.deps import Services
from api.services.progress import ProgressKeeper
from db.models.jobs import GenerationRow, JobRow
from monitoring.points import MetricRecord, RankBatch
from tests import factories


async def first_step_of(services: Services, job_id: str) -> datetime | None:
    async with services.control.read() as session:
        return (await session.get_one(GenerationRow, (job_id, 1))).first_step_at


async def test_the_earliest_record_tells_even_after_a_restart(services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    began = services.now().timestamp() - 60
    for first_step, age in ((1, 0.0), (30, 30.0)):  # the second keeper is that of a coordinator started again
        keeper = ProgressKeeper(services)
        record = MetricRecord(seq=1, step=first_step, time=began + age, values={})
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=[record]))
        await keeper.flush()
        found = await first_step_of(services, job.id)
        assert found is not None
        assert abs(found.timestamp() - began) < 0.01


async def test_late_news_of_an_older_generation_counts_up_to_where_the_newest_went_on(services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
        session.add(GenerationRow(job_id=job.id, generation=2, world_size=1, started_at=services.now(), start_step=52, store_token="t"))
        (await session.get_one(JobRow, job.id)).generation = 2
    keeper = ProgressKeeper(services)
    for step, told in ((31, 31), (52, 52), (53, 52)):  # the last one was never committed by who goes on
        record = MetricRecord(seq=step, step=step, time=services.now().timestamp(), values={})
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=[record]))
        await keeper.flush()
        async with services.control.read() as session:
            progress = (await session.get_one(JobRow, job.id)).progress
            assert progress is not None
            assert progress["step"] == told


async def test_a_loss_that_is_not_finite_is_told_once_with_its_first_step(services: Services, client: httpx.AsyncClient) -> None:
    """A job of NaN completed without a word."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    keeper, now = ProgressKeeper(services), services.now().timestamp()
    losses: list[tuple[int, Any]] = [(10, 1.0), (11, "NaN"), (12, "Infinity"), (13, 1.0)]
    for step, loss in losses:
        if step == 13:
            keeper = ProgressKeeper(services)  # that of a coordinator started again
        record = MetricRecord(seq=step, step=step, time=now, values={"loss": loss})
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=[record]))
        await keeper.flush()
    found = (await client.get(f"/api/v1/training/jobs/{job.id}")).json()
    assert (found["progress"]["step"], found["progress"]["not_finite_step"]) == (13, 11)
    events = (await client.get(f"/api/v1/training/jobs/{job.id}/events")).json()["items"]
    assert [(event["type"], event["data"]["step"]) for event in events if "finite" in event["type"]] == [("job.loss_not_finite", 11)]


async def test_a_new_generation_begins_with_a_clean_slate(services: Services, client: httpx.AsyncClient) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        gone = {"step": 20, "not_finite": {"step": 11, "generation": 1}}
        job = await factories.create_running_job(session, node, progress=gone)
        (await session.get_one(JobRow, job.id)).generation = 2
    assert (await client.get(f"/api/v1/training/jobs/{job.id}")).json()["progress"]["not_finite_step"] is None
