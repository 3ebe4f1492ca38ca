"""What a rank says is input: whatever cannot be stored is dropped alone, counted, and told once per job."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.services.ingest import history_room
from paceline.api.services.ingest import writer as writing
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.cluster.protocol import UPLOAD_PATH
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.metrics import LogLineRow, MetricRecordRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import ingest as repository
from paceline.monitoring.points import HighWater, LogLine, MetricRecord, RankBatch, RankEvent
from tests import factories
from tests.api.conftest import Agent, count

BAD: list[dict[str, Any]] = [
    {"step": -1},
    {"step": 1 << 53},
    {"step": 0.5},
    {"step": "7"},
    {"step": True},
    {"time": 1e300},
    {"time": -1.0},
    {"time": "NaN"},
    {"values": {"loss": "high"}},
    {"values": {"n" * 201: 1.0}},
    {"values": {f"w{n}": 1.0 for n in range(1_001)}},
    {"values": [1.0]},
]


def plain(batch: RankBatch) -> dict[str, Any]:
    return {"job_id": batch.job_id, "generation": batch.generation, "rank": batch.rank}


async def send(agent: Agent, *batches: dict[str, Any]) -> list[HighWater]:
    answer = await agent.client.post(UPLOAD_PATH, content=json.dumps({"batches": batches}))
    assert answer.status_code == 200, answer.text
    return [HighWater(**each) for each in answer.json()["acknowledged"]]


async def told(services: Services, type: str) -> list[EventRow]:
    async with services.control.read() as session:
        return list(await session.scalars(select(EventRow).where(EventRow.type == type)))


@pytest.fixture
async def beside(services: Services, node: tuple[NodeRow, str]) -> JobRow:
    """A healthy job on the same node."""
    async with services.write() as session:
        return await factories.create_running_job(session, node[0])


async def test_a_negative_step_blocks_no_upload_of_its_node(agent: Agent, services: Services, beside: JobRow, app: FastAPI) -> None:
    good = {"step": 1, "time": 1.0, "values": {"loss": 1.0}}
    records = [{"seq": seq, **good, **(BAD[seq // 2] if seq % 2 else {})} for seq in range(1, 2 * len(BAD) + 1)]
    bad = sum(record["seq"] % 2 for record in records)
    lines = [{"seq": 1, "time": 1e300, "level": "info", "text": "late"}, {"seq": 2, "time": 1.0, "level": "info", "text": "good"}]
    event = {"seq": 1, "time": 1e300, "kind": "sample", "data": {"step": 1, "text": "a\0b"}}
    mine = {**plain(agent.batch()), "metrics": records, "logs": lines, "events": [event]}
    theirs = {**plain(agent.batch(job_id=beside.id)), "metrics": [{"seq": 1, **good}], "logs": [{**lines[1], "seq": 1}]}

    marks = await send(agent, mine, theirs)
    assert [(mark.metrics, mark.logs, mark.events) for mark in marks] == [(len(records), 2, 1), (1, 1, 0)]
    assert await count(services, MetricRecordRow) == len(records) - bad + 1
    assert await count(services, LogLineRow) == 2
    assert app.state.vitals.registry.get_sample_value("paceline_records_dropped_total", {"reason": "refused"}) == bad + 1
    assert len(await told(services, "job.sample")) == 1, "an event with an impossible time is kept"

    again = {"seq": len(records) + 1, **good, "step": -1}
    assert (await send(agent, {**plain(agent.batch()), "metrics": [again]}))[0].metrics == len(records) + 1
    (warning,) = await told(services, "job.records_refused")
    assert (warning.job_id, warning.data["count"]) == (agent.job_id, bad)
    assert "The first: step -1 is not between 0 and 9007199254740991" in warning.message


async def test_plus_and_minus_infinity_of_one_metric_block_nothing(agent: Agent, client: httpx.AsyncClient) -> None:
    for step, value in enumerate(("Infinity", "-Infinity", 1e308, 1e308, -1e308, "NaN", 2.0), 1):
        record = MetricRecord(seq=step, step=step * 3, time=1.0, values={"x": value, "pipeline_sent_bytes": value})  # type: ignore[dict-item]
        assert (await agent.upload(agent.batch(metrics=[record])))[0].metrics == step
    curves = (await client.get(f"/api/v1/metrics/jobs/{agent.job_id}?names=x&buckets=1")).json()["curves"]
    assert (curves[0]["minimum"], curves[0]["maximum"], curves[0]["last"]) == (["-Infinity"], ["Infinity"], [2.0])
    assert (await client.get(f"/api/v1/training/jobs/{agent.job_id}/performance")).status_code == 200


async def test_a_record_that_the_database_refuses_fails_no_other_upload(
    agent: Agent, services: Services, beside: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = repository.insert_records

    async def refuse(session: Any, rows: Any) -> None:
        await insert(session, rows)
        if any("poison" in row[5] for row in rows):
            raise ValueError("poison")

    monkeypatch.setattr(repository, "insert_records", refuse)
    mine = [*factories.records(1, 3), *factories.records(4, 1, poison=1.0), *factories.records(5, 3)]
    one, other, whole = await asyncio.gather(
        agent.upload(agent.batch(metrics=mine, logs=factories.log_lines(2))),
        agent.upload(agent.batch(job_id=beside.id, metrics=factories.records(1, 5))),
        agent.upload(agent.batch(metrics=mine)),
    )
    assert (one[0].metrics, one[0].logs, other[0].metrics, whole[0].metrics) == (7, 2, 5, 7)
    assert await count(services, MetricRecordRow) == 6 + 5
    assert [row.job_id for row in await told(services, "job.records_refused")] == [agent.job_id]


async def test_fifty_thousand_metric_names_leave_no_more_than_the_limit(
    agent: Agent, services: Services, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MAX_NAMES_PER_JOB", 5)
    for seq in (1, 2):
        record = MetricRecord(seq=seq, step=seq, time=1.0, values={"loss": 1.0, **{f"w{seq}{n}": 1.0 for n in range(5)}})
        assert (await agent.upload(agent.batch(metrics=[record])))[0].metrics == seq
    curves = (await client.get(f"/api/v1/metrics/jobs/{agent.job_id}?names=loss,w10,w20")).json()
    assert curves["names"] == ["loss", "w10", "w11", "w12", "w13", "w14"], "the trainer's own do not count"
    assert [(curve["name"], curve["steps"]) for curve in curves["curves"]] == [("loss", [1, 2]), ("w10", [1])]
    assert [row.job_id for row in await told(services, "job.metric_names_full")] == [agent.job_id]


async def test_events_without_end_leave_a_bounded_history(agent: Agent, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """They filled the database that changes of state need, up to 256 KiB each."""
    monkeypatch.setattr(history_room, "MAX_JOB_EVENTS", 5)
    data = {"step": 1, "metrics": {f"m{n}" + "x" * 250: 1.0 for n in range(150)}, "more": "x" * 20_000}
    events = [RankEvent(seq=seq, time=0.0, kind="evaluated", data=data) for seq in range(1, 21)]
    directory = f"/c/{agent.job_id}/step-10.g1"
    saved: dict[str, Any] = {"directory": directory, "step": 10, "bytes": 5, "manifest_sha256": "a"}
    unreadable: dict[str, Any] = {"step": "x"}
    events += [RankEvent(seq=21 + n, time=0.0, kind="checkpoint_committed", data=each) for n, each in enumerate((unreadable, saved))]

    assert (await agent.upload(agent.batch(events=events)))[0].events == 22
    evaluated = await told(services, "job.evaluated")
    assert len(evaluated) == 5
    assert {(len(row.data["metrics"]), row.data.keys() == {"rank", "step", "metrics"}) for row in evaluated} == {(100, True)}
    assert max(len(json.dumps(row.data)) for row in evaluated) < 25_000
    async with services.control.read() as session:
        assert await checkpoint_rows.by_directory(session, directory) is not None
    (warning,) = await told(services, "job.records_refused")
    assert warning.data["count"] == 16
    assert "The first: the job has 5 events: its history has no room" in warning.message


async def test_failed_saves_recoveries_and_bad_losses_without_end_leave_a_bounded_history(
    agent: Agent, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had no limit: a rank filled the control database with them, on a nearly full disk as well."""
    monkeypatch.setattr(history_room, "MAX_JOB_EVENTS", 2)
    monkeypatch.setattr(history_room, "MAX_EVENTS_WITH_ESSENTIAL", 8)
    carried = {"step": 1, "transfers": 0, "entered_at": 1.0, "joined_at": 1.0, "agreed_at": 1.0, "first_step_at": None}
    bad = {"step": 61, "what": "not_finite", "act": "stop", "loss": "NaN"}
    kinds: list[tuple[Any, dict[str, Any]]] = [
        ("evaluated", {"step": 1}),
        ("checkpoint_failed", {"step": 1, "reason": "no space left"}),
        ("checkpoint_restored", {"step": 1, "directory": "/c/x"}),
        ("carried_on", carried),
        ("bad_loss", bad),
    ]
    events = [RankEvent(seq=1 + n, time=0.0, kind=kind, data=data) for n, (kind, data) in enumerate(kinds * 20)]
    assert (await agent.upload(agent.batch(events=events[:50])))[0].events == 50
    assert (await agent.upload(agent.batch(events=events)))[0].events == 100

    async with services.control.read() as session:
        types = [row.type for row in await session.scalars(select(EventRow).where(EventRow.job_id == agent.job_id).order_by(EventRow.seq))]
        job = await session.get_one(JobRow, agent.job_id)
    essential = ["checkpoint.failed", "checkpoint.restored", "job.carried_on", "job.loss_not_finite"]
    assert types == ["job.evaluated", *essential, "job.evaluated", *essential[:3], "job.history_full", "job.records_refused"]
    (full,) = await told(services, "job.history_full")
    assert "the job has 8 events: its history has no room for more failed saves" in full.message
    assert (job.progress or {})["bad_loss"]["act"] == "stop", "it is acted on without an entry"


async def test_an_event_that_always_fails_holds_up_its_rank_for_five_uploads_only(agent: Agent, app: FastAPI, services: Services) -> None:
    applied: list[int] = []

    async def apply(_: Any, __: Any, ___: Any, event: RankEvent) -> None:
        if event.seq == 1:
            raise ValueError("never")
        applied.append(event.seq)

    app.state.upload_door.apply_event = apply
    batch = agent.batch(events=[RankEvent(seq=seq, time=0.0, kind="evaluated", data={}) for seq in (1, 2)])
    assert [(await agent.upload(batch))[0].events for _ in range(6)] == [0, 0, 0, 0, 2, 2]
    assert applied == [2]
    assert "never" in (await told(services, "job.records_refused"))[0].message


async def test_one_jobs_impossible_progress_stops_no_other_jobs(
    agent: Agent, app: FastAPI, services: Services, beside: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = app.state.upload_door.progress
    async with keeper._flushing:  # what the upload brings is not written before it is spoilt
        await agent.upload(agent.batch(metrics=factories.records(1, 2)), agent.batch(job_id=beside.id, metrics=factories.records(1, 3)))
        keeper._tracks[agent.job_id].steps.append((9, 1e300))
    await keeper.flush()
    async with services.control.read() as session:
        progress = {job_id: (await session.get_one(JobRow, job_id)).progress for job_id in (agent.job_id, beside.id)}
    assert progress[agent.job_id] is None
    assert (progress[beside.id] or {})["step"] == 3


async def test_strangers_without_end_leave_one_short_event_a_minute(agent: Agent, app: FastAPI, services: Services) -> None:
    for number in range(3):
        await agent.upload(*(agent.batch(job_id=f"{number}-{n}" + "x" * 1_000) for n in range(20)))
    (warning,) = await told(services, "upload.dropped")
    assert len(warning.message) < 300
    assert warning.data["places"] == 20


@pytest.mark.parametrize(("limit", "most"), [("MAX_QUEUED_RECORDS", 10), ("MAX_QUEUED_BYTES", 150)])
async def test_an_upload_that_waits_too_long_leaves_the_queue(
    services: Services, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(writing, "STORE_SECONDS", 0.05)
    monkeypatch.setattr(writing, limit, most)
    writer = MetricsWriter(services.metrics, services.bus, services.now)  # nobody runs it: the database is stuck
    batch = RankBatch(job_id="j", generation=1, rank=0, logs=[LogLine(seq=n, time=0.0, level="info", text="") for n in range(1, 9)])
    waiting = asyncio.create_task(writer.store([batch], bytes=100))
    await asyncio.sleep(0)
    assert writer.queued == (8, 100)
    with pytest.raises(ProblemError, match="8 records of 100 bytes wait"):
        await writer.store([batch], bytes=100)
    with pytest.raises(ProblemError, match="not stored within"):
        await waiting
    assert writer.queued == (0, 0)
