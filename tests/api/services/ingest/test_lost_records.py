"""A coordinator that is restored from an older copy, and nodes that have given up what they had sent before: the gap is taken and told, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import delete, select, update

from paceline.api.core.context import Services
from paceline.api.core.vitals import GONE
from paceline.api.services.ingest.lost_records import LOST
from paceline.api.services.ingest.writer import busy
from paceline.cluster.agent.upload.delivery import UploadFailedError
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.agent.upload.uploader import Uploader
from paceline.cluster.protocol import RankKey
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import RankEventMarkRow
from paceline.db.models.metrics import MetricRecordRow, StreamMarkRow
from paceline.monitoring.points import RankBatch, RankEvent, Upload
from paceline.monitoring.spool import SpoolWriter
from paceline.training.rank_folder import RankFolder
from tests import factories
from tests.api.conftest import Agent

KEPT = 20_000


class Node:
    """The agent's side of one rank: what it writes goes through a spool and an uploader of the real kind."""

    def __init__(self, agent: Agent, data: Path) -> None:
        self.key, self.http = RankKey(agent.job_id, 1, 0), agent.client
        self.folder = RankFolder(data, *self.key)
        self.folder.path.mkdir(parents=True)
        self.written = 0
        self.start()

    def start(self) -> None:
        """Start the agent, anew where there was one."""
        self.uploader = Uploader(self.http, lambda _: None)
        self.uploader.follow(self.key, RankSpool(self.folder, self.key, kept=KEPT))

    async def record(self, steps: int) -> None:
        writer = SpoolWriter(self.folder.metrics)
        for record in factories.records(self.written + 1, steps):
            writer.append(msgspec.json.encode(record))
        writer.close()
        self.written += steps
        await self.uploader.finish()

    async def report(self, count: int) -> None:
        writer = SpoolWriter(self.folder.events)
        for seq in range(writer.records + 1, writer.records + count + 1):
            writer.append(msgspec.json.encode(RankEvent(seq=seq, time=0.0, kind="sample", data={"step": seq, "text": "x" * 100})))
        writer.close()
        await self.uploader.finish()


@pytest.fixture
def node_of_job(agent: Agent, tmp_path: Path) -> Node:
    return Node(agent, tmp_path)


async def restore(services: Services, seq: int) -> None:
    """Bring the database back to when the rank had recorded `seq` points and as many events."""
    async with services.metrics.write() as session:
        await session.execute(delete(MetricRecordRow).where(MetricRecordRow.step > seq))
        await session.execute(update(StreamMarkRow).values(seq=seq))
    async with services.write() as session:
        await session.execute(update(RankEventMarkRow).values(seq=seq))


async def stored_steps(services: Services) -> list[int]:
    async with services.metrics.read() as session:
        return list(await session.scalars(select(MetricRecordRow.step).order_by(MetricRecordRow.seq)))


async def told(services: Services) -> list[EventRow]:
    async with services.control.read() as session:
        return list(await session.scalars(select(EventRow).where(EventRow.type == LOST).order_by(EventRow.seq)))


def counted(app: Any) -> float:
    return float(app.state.upload_door.vitals.dropped.labels(GONE)._value.get())


async def test_the_gap_is_taken_counted_and_told_once(node_of_job: Node, services: Services, app: Any) -> None:
    for _ in range(10):
        await node_of_job.record(100)
    assert await stored_steps(services) == list(range(1, 1001))
    await restore(services, 150)
    await node_of_job.record(3)
    steps = await stored_steps(services)
    first = steps[150]
    assert (first > 500, steps) == (True, [*range(1, 151), *range(first, 1004)])
    (event,) = await told(services)
    assert f"{first - 151} points of rank 0 between steps 150 and {first} are lost" in event.message
    assert (event.data["first"], event.data["last"], event.generation) == (151, first - 1, 1)
    assert counted(app) == first - 151
    await node_of_job.record(200)
    assert await stored_steps(services) == [*range(1, 151), *range(first, 1204)]
    assert len(await told(services)) == 1


async def test_a_second_restoration_is_told_as_well(node_of_job: Node, services: Services) -> None:
    for seq in (150, 200):
        for _ in range(10):
            await node_of_job.record(100)
        await restore(services, seq)
        await node_of_job.record(1)
    assert len(await told(services)) == 2


async def test_an_agent_that_starts_anew_meanwhile_tells_of_the_same_gap(node_of_job: Node, services: Services) -> None:
    for _ in range(10):
        await node_of_job.record(100)
    await restore(services, 150)
    node_of_job.start()  # its marks were never saved
    await node_of_job.record(1)
    steps = await stored_steps(services)
    assert steps == [*range(1, 151), *range(steps[150], 1002)]
    assert len(await told(services)) == 1


async def test_a_coordinator_that_still_has_all_that_is_gone_loses_nothing(node_of_job: Node, services: Services) -> None:
    for _ in range(10):
        await node_of_job.record(100)
    await restore(services, 900)
    node_of_job.start()
    await node_of_job.record(1)
    assert await stored_steps(services) == list(range(1, 1002))
    assert await told(services) == []


async def test_a_coordinator_that_ends_between_telling_and_storing_tells_once(
    node_of_job: Node, services: Services, app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        await node_of_job.record(100)
    await restore(services, 150)
    writer = app.state.upload_door.writer
    store = writer.store

    async def end_at_the_gap(batches: list[RankBatch], **named: Any) -> Any:
        if any(batch.metrics_gone for batch in batches):
            raise busy("the process ends")
        return await store(batches, **named)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "store", end_at_the_gap)
        with pytest.raises(UploadFailedError):
            await node_of_job.record(1)
    await node_of_job.record(1)
    steps = await stored_steps(services)
    assert steps == [*range(1, 151), *range(steps[150], 1003)]
    assert len(await told(services)) == 1


async def test_events_that_are_gone_are_told_with_the_mark_that_passes_them(node_of_job: Node, services: Services) -> None:
    for _ in range(10):
        await node_of_job.report(50)
    await restore(services, 20)
    await node_of_job.report(1)
    (event,) = await told(services)
    assert (event.data["first"], event.data["rank"]) == (21, 0)
    assert event.message.startswith(f"{event.data['last'] - 20} events of rank 0 are lost: ")
    async with services.control.read() as session:
        assert await session.scalar(select(RankEventMarkRow.seq)) == 501
        samples = await session.scalars(
            select(EventRow.data["step"].as_integer()).where(EventRow.type == "job.sample").order_by(EventRow.seq)
        )
    again = list(samples)[500:]
    assert again == list(range(event.data["last"] + 1, 502))


async def test_a_hole_that_no_agent_has_named_is_not_taken(agent: Agent, services: Services) -> None:
    """An agent of the version before says nothing of what is gone: it has everything."""
    for gone in (0, 3, 5):
        marks = await agent.upload(agent.batch(metrics=factories.records(5, 3), metrics_gone=gone))
        assert marks[0].metrics == 0
    assert (await agent.upload(agent.batch(metrics=factories.records(5, 3), metrics_gone=4)))[0].metrics == 7
    assert (await agent.upload(agent.batch(metrics=factories.records(1, 4))))[0].metrics == 7
    assert await stored_steps(services) == [5, 6, 7]


async def test_the_gap_is_named_beside_a_record_that_cannot_be_read(agent: Agent, services: Services) -> None:
    upload = msgspec.to_builtins(Upload(batches=[agent.batch(metrics=factories.records(5, 3), metrics_gone=4)]))
    upload["batches"][0]["metrics"][0]["step"] = "five"
    answer = await agent.client.post("/api/v1/agents/upload", json=upload)
    assert answer.json()["acknowledged"][0]["metrics"] == 7
    assert [event.message[:40] for event in await told(services)] == ["4 points of rank 0 before step 6 are los"]


async def test_until_a_coordinator_passes_over_gaps_an_agent_keeps_everything(
    node_of_job: Node, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the version before could not go on behind a gap."""
    post = node_of_job.http.post

    async def answer_as_before(*positional: Any, **named: Any) -> httpx.Response:
        answer = await post(*positional, **named)
        content = {name: value for name, value in answer.json().items() if name != "passes_gone"}
        return httpx.Response(answer.status_code, json=content, request=answer.request)

    with monkeypatch.context() as patch:
        patch.setattr(node_of_job.http, "post", answer_as_before)
        for _ in range(10):
            await node_of_job.record(100)
        await restore(services, 150)
        await node_of_job.record(1)
    assert await stored_steps(services) == list(range(1, 1002))
    assert await told(services) == []
