"""Agents' uploads: nothing lost, nothing doubled, limits with a way out."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.services.ingest import uploads
from paceline.api.services.ingest.rank_events import DROPPED_CHARACTERS
from paceline.api.services.nodes import joining
from paceline.api.services.storage import rollups
from paceline.api.services.storage.keeping import DeletionPace
from paceline.cluster.protocol import JOIN_PATH, UPLOAD_PATH, RankKey
from paceline.db.models.events import EventRow
from paceline.db.models.identity import JoinTokenRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.metrics import LogLineRow, MetricRecordRow, MetricRollupRow
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.points import MetricRecord, RankBatch, RankEvent
from paceline.training.spec.stored import StoredSpec
from tests import factories
from tests.api.conftest import Agent, count
from tests.conftest import Connect
from tests.loop_watchdog import watched


async def test_records_and_lines_are_stored_and_acknowledged(agent: Agent, services: Services) -> None:
    marks = await agent.upload(agent.batch(metrics=factories.records(1, 25), logs=factories.log_lines(3)))
    assert [(mark.metrics, mark.logs, mark.events) for mark in marks] == [(25, 3, 0)]
    assert await count(services, MetricRecordRow) == 25
    assert await count(services, LogLineRow) == 3


async def test_what_is_sent_twice_is_stored_once(agent: Agent, services: Services) -> None:
    batch = agent.batch(metrics=factories.records(1, 20), logs=factories.log_lines(5))
    first, second = await agent.upload(batch), await agent.upload(batch)
    assert first == second
    await agent.upload(agent.batch(metrics=factories.records(11, 20)))
    assert await count(services, MetricRecordRow) == 30
    assert await rollups.refresh(services, DeletionPace.of(60.0), factories.START)
    async with services.metrics.read() as session:
        counted = await session.scalar(select(func.sum(MetricRollupRow.count)).where(MetricRollupRow.level == 10))
    assert counted == 30


async def test_concurrent_copies_of_one_upload_are_stored_once(agent: Agent, services: Services) -> None:
    batch = agent.batch(metrics=factories.records(1, 50))
    replies = await asyncio.gather(*(agent.upload(batch) for _ in range(5)))
    assert {mark.metrics for marks in replies for mark in marks} == {50}
    assert await count(services, MetricRecordRow) == 50


async def test_nothing_after_a_hole_is_taken(agent: Agent, services: Services) -> None:
    holed = factories.records(1, 3) + factories.records(5, 3)
    assert (await agent.upload(agent.batch(metrics=holed)))[0].metrics == 3
    assert (await agent.upload(agent.batch(metrics=factories.records(4, 4))))[0].metrics == 7
    assert await count(services, MetricRecordRow) == 7


async def test_nan_and_infinity_survive(agent: Agent, client: httpx.AsyncClient) -> None:
    await agent.upload(agent.batch(metrics=factories.records(1, 1, loss="NaN") + factories.records(2, 1, loss="Infinity")))
    curve = (await client.get(f"/api/v1/metrics/jobs/{agent.job_id}?names=loss")).json()["curves"][0]
    assert curve["last"] == ["NaN", "Infinity"]


async def test_nul_bytes_in_lines_and_names_do_not_stop_the_stream(agent: Agent, services: Services) -> None:
    lines = factories.log_lines(1, text="a\0b")
    marks = await agent.upload(agent.batch(logs=lines, metrics=[MetricRecord(seq=1, step=1, time=0.0, values={"x\0y": 1.0})]))
    assert (marks[0].logs, marks[0].metrics) == (1, 1)
    async with services.metrics.read() as session:
        assert await session.scalar(select(LogLineRow.text)) == "a\ufffdb"


async def test_a_rank_of_another_node_is_dropped_with_one_warning(agent: Agent, services: Services) -> None:
    for _ in range(2):
        marks = await agent.upload(agent.batch(generation=9, metrics=factories.records(1, 4)))
        assert marks[0].metrics == 4
    assert await count(services, MetricRecordRow) == 0
    async with services.control.read() as session:
        warnings = (await session.scalars(select(EventRow).where(EventRow.type == "upload.dropped"))).all()
    assert [(row.actor_kind, row.data["generation"]) for row in warnings] == [("node", 9)]


async def test_late_news_of_an_older_generation_is_kept(agent: Agent, services: Services, node: tuple[NodeRow, str]) -> None:
    async with services.write() as session:
        job = await session.get_one(JobRow, agent.job_id)
        job.generation = 2
    assert (await agent.upload(agent.batch(metrics=factories.records(1, 2))))[0].metrics == 2
    assert await count(services, MetricRecordRow) == 2


@pytest.mark.parametrize(("size", "code", "status"), [(5_001, "too_many_records", 413), (5_000, None, 200)], ids=["over", "at the limit"])
async def test_the_limit_of_records(agent: Agent, size: int, code: str | None, status: int) -> None:
    answer = await agent.send(agent.batch(metrics=factories.records(1, size)))
    assert answer.status_code == status, answer.text
    assert answer.json().get("code") == code


@pytest.mark.parametrize("record", [b"0", b"{}"])
async def test_a_body_full_of_bad_records_is_refused_without_keeping_the_event_loop(agent: Agent, record: bytes) -> None:
    """Each was decoded, with two exceptions, before they were counted: eight seconds of a body of `0,0,0`."""
    head, tail = f'{{"batches":[{{"job_id":"{agent.job_id}","generation":1,"rank":0,"metrics":['.encode(), b"]}]}"
    count = ((4 << 20) - len(head) - len(tail)) // (len(record) + 1)
    with watched() as watch:
        post = agent.client.post(UPLOAD_PATH, content=head + b",".join([record] * count) + tail)
        answer = await asyncio.create_task(post)  # in callbacks of its own, all of which are watched
    assert (answer.status_code, answer.json()["code"]) == (413, "too_many_records")
    watch.assert_free()


async def test_the_limit_of_bytes(agent: Agent) -> None:
    answer = await agent.client.post(UPLOAD_PATH, content=b"x" * ((4 << 20) + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("body", [b"{", b'{"batches": 1}', b"\xff"])
async def test_malformed_uploads_are_problems(agent: Agent, body: bytes) -> None:
    answer = await agent.client.post(UPLOAD_PATH, content=body)
    assert answer.json()["code"] in ("malformed_body", "invalid_request")


async def test_uploads_need_a_node_credential(agent: Agent, client: httpx.AsyncClient, connect: Connect) -> None:
    async with connect() as stranger:
        for who in (client, stranger):
            answer = await who.post(UPLOAD_PATH, content=b'{"batches":[]}')
            assert (answer.status_code, answer.json()["code"]) == (401, "invalid_credential")


async def test_an_event_that_cannot_be_applied_is_not_acknowledged_but_the_rest_is(agent: Agent, app: Any, services: Services) -> None:
    applied: list[int] = []

    async def apply(session: AsyncSession, node: NodeRow, batch: RankBatch, event: RankEvent) -> None:
        if event.seq == 3 and len(applied) == 2:
            applied.append(0)
            raise ValueError("not now")
        applied.append(event.seq)

    app.state.upload_door.apply_event = apply
    sent = [RankEvent(seq=seq, time=0.0, kind="evaluated", data={"step": seq}) for seq in (1, 2, 3, 4)]
    batch = agent.batch(metrics=factories.records(1, 1), events=sent)
    assert [(mark.metrics, mark.events) for mark in await agent.upload(batch)] == [(1, 2)]
    assert [(mark.metrics, mark.events) for mark in await agent.upload(batch)] == [(1, 4)]
    assert [(mark.metrics, mark.events) for mark in await agent.upload(batch)] == [(1, 4)]
    assert applied == [1, 2, 0, 3, 4]


async def test_others_write_while_a_flood_of_events_is_applied(agent: Agent, services: Services) -> None:
    """They waited for all events of an upload, one to three milliseconds for each of up to 4,000."""
    events = [RankEvent(seq=number, time=0.0, kind="evaluated", data={"step": number}) for number in range(1, 301)]
    seen = list[int]()
    upload = asyncio.create_task(agent.upload(agent.batch(events=events)))
    while not upload.done():
        async with services.write() as session:
            seen.append(await session.scalar(select(func.count()).select_from(EventRow).where(EventRow.job_id == agent.job_id)) or 0)
        await asyncio.sleep(0)
    assert [mark.events for mark in await upload] == [300]
    assert len({each for each in seen if seen[0] < each < seen[0] + 300}) > 1, seen


async def test_the_tries_of_events_are_remembered_of_the_newest_only(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_REMEMBERED_TRIES", 3)
    door = app.state.upload_door
    places = [RankKey("job", 1, rank) for rank in range(5)]
    assert not any(door._gives_up(place, 1, ValueError("never")) for place in places)
    assert [place for place, _ in door._tries] == places[2:]


async def test_progress_follows_rank_0_and_keeps_what_others_wrote(agent: Agent, app: Any, services: Services) -> None:
    async with services.write() as session:
        (await session.get_one(JobRow, agent.job_id)).progress = {"last_checkpoint_step": 10}
    await agent.upload(agent.batch(metrics=factories.records(1, 20, tokens_per_second=100.0)))
    await app.state.upload_door.progress.flush()
    async with services.control.read() as session:
        progress = (await session.get_one(JobRow, agent.job_id)).progress
    assert progress is not None
    assert (progress["step"], progress["tokens_per_second"], progress["last_checkpoint_step"]) == (20, 100.0, 10)
    assert math.isclose(progress["loss"], math.exp(-0.2))


async def test_joining_takes_a_token_once(connect: Connect, services: Services) -> None:
    async with services.write() as session:
        tokens = [
            (await joining.create_join_token(session, created_by="x", now=services.now(), lifetime=factories.HOUR))[0] for _ in range(2)
        ]
    async with connect() as client:
        joined = await client.post(JOIN_PATH, json={"token": tokens[0], "name": "n1"})
        assert joined.status_code == 201, joined.text
        again = await client.post(JOIN_PATH, json={"token": tokens[0], "name": "n2"})
        assert (again.status_code, again.json()["code"]) == (401, "invalid_join_token")
        taken = await client.post(JOIN_PATH, json={"token": tokens[1], "name": "n1"})
        assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
        assert (await client.post(JOIN_PATH, json={"token": tokens[1], "name": "n2"})).status_code == 201
    async with connect(joined.json()["credential"]) as node:
        assert (await node.post(UPLOAD_PATH, content=b'{"batches":[]}')).json() == {"acknowledged": [], "passes_gone": True}
    async with services.control.read() as session:
        assert all(row.used_at for row in await session.scalars(select(JoinTokenRow)))


async def test_a_file_that_curves_come_from_is_in_the_jobs_history(agent: Agent, client: httpx.AsyncClient) -> None:
    """Cut to what a history shows, whatever a reader of another user sends."""
    found = [
        RankEvent(
            seq=1, time=0.0, kind="curves_found", data={"path": "/srv/runs/a", "how": "process 7 of this rank wrote it", "late": False}
        ),
        RankEvent(seq=2, time=0.0, kind="curves_found", data={"path": "x" * 9000, "late": 3}),
    ]
    await agent.upload(agent.batch(events=found))
    history = (await client.get(f"/api/v1/training/jobs/{agent.job_id}/events")).json()["items"]
    told = sorted((event for event in history if event["type"] == "job.curves_found"), key=lambda event: len(event["message"]))
    assert [event["message"] for event in told] == [
        "curves of rank 0 come from /srv/runs/a",
        f"curves of rank 0 come from {'x' * DROPPED_CHARACTERS}",
    ]
    assert (told[0]["data"]["path"], told[0]["data"]["late"], told[0]["cause"]) == ("/srv/runs/a", False, "process 7 of this rank wrote it")
    assert told[1]["data"]["late"] is True


async def test_curves_that_are_read_from_printed_lines_are_told_as_such(
    agent: Agent, client: httpx.AsyncClient, services: Services
) -> None:
    job = f"/api/v1/training/jobs/{agent.job_id}"
    async with services.write() as session:
        row = await session.get(JobRow, agent.job_id)
        assert row is not None
        row.spec = StoredSpec({"name": "own", "script": {"path": "/srv/train.py"}})
    assert (await client.get(job)).json()["printed_curves"] is False
    data = {"path": "/data/output.log", "how": "read from printed lines", "late": True, "printed": True}
    await agent.upload(agent.batch(events=[RankEvent(seq=1, time=0.0, kind="curves_found", data=data)]))
    (event,) = (await client.get(f"{job}/events")).json()["items"]
    told = (event["type"], event["message"], event["cause"])
    assert told == ("job.curves_printed", "curves of rank 0 are read from the lines that it prints", "read from printed lines")
    assert (await client.get(job)).json()["printed_curves"] is True
