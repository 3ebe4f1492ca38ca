"""Readings of nodes through the upload door: each record once, what cannot be stored is refused with the value and the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import msgspec
import pytest

from paceline.api.core.context import Services
from paceline.api.services.ingest.readings import why_refused
from paceline.cluster.protocol import UPLOAD_PATH
from paceline.db.models.metrics import StreamMarkRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.readings import NodeReadingRow
from paceline.db.repositories import storage
from paceline.db.repositories.readings import SPOOL_MARKS_BEFORE
from paceline.monitoring.points import Upload, UploadReply
from paceline.monitoring.readings import NodeReadings, ReadingRecord
from tests.api.conftest import count
from tests.conftest import Connect

NOW = datetime(2026, 11, 25, tzinfo=UTC)
START = NOW.timestamp() - 3_600


def record(seq: int, time: float = START, power: float | None = 300.0) -> ReadingRecord:
    return ReadingRecord(seq=seq, times=[time + seq], columns={"gpu:0": {"power_watts": [power]}})


def sent(*records: ReadingRecord, spool: int = 7) -> NodeReadings:
    return NodeReadings(spool=spool, records=list(records))


@pytest.fixture
async def agent(node: tuple[NodeRow, str], connect: Connect) -> AsyncIterator[httpx.AsyncClient]:
    async with connect(node[1]) as client:
        yield client


async def post(client: httpx.AsyncClient, readings: NodeReadings) -> httpx.Response:
    return await client.post(UPLOAD_PATH, content=msgspec.json.encode(Upload(batches=[], readings=readings)))


async def held(client: httpx.AsyncClient, readings: NodeReadings) -> int | None:
    answer = await post(client, readings)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=UploadReply).readings


async def test_each_record_is_stored_once_and_counted(services: Services, agent: httpx.AsyncClient) -> None:
    assert await held(agent, sent(record(1), record(2))) == 2
    assert await held(agent, sent(record(1), record(2), record(3))) == 3
    assert await held(agent, sent(record(2))) == 3
    assert await count(services, NodeReadingRow) == 3
    async with services.metrics.read() as session:
        assert (await storage.by_kind(session))["readings"][0] == 3


async def test_uploads_of_one_moment_are_stored_once_each(services: Services, agent: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(held(agent, sent(record(1), record(2))) for _ in range(5)))
    assert answers == [2] * 5
    assert await count(services, NodeReadingRow) == 2


async def test_a_new_spool_begins_anew_and_the_marks_of_long_gone_ones_go(services: Services, agent: httpx.AsyncClient) -> None:
    await held(agent, sent(record(1), record(2), spool=7))
    assert await held(agent, sent(record(1, START + 10), record(2, START + 10), spool=8)) == 2
    assert await count(services, NodeReadingRow) == 4
    for spool in range(9, 30):
        await held(agent, sent(record(1, START + 10 * spool), spool=spool))
    assert await count(services, StreamMarkRow) == 1 + SPOOL_MARKS_BEFORE


async def test_an_upload_of_the_spool_before_that_was_held_up_is_not_stored_again(services: Services, agent: httpx.AsyncClient) -> None:
    held_up = sent(record(1), record(2), spool=7)
    await held(agent, held_up)
    await held(agent, sent(record(1, START + 10), spool=8))
    assert await held(agent, held_up) == 2
    assert await count(services, NodeReadingRow) == 3


async def test_records_after_one_that_the_agent_passed_over_are_taken(services: Services, agent: httpx.AsyncClient) -> None:
    assert await held(agent, sent(record(1))) == 1
    assert await held(agent, sent(record(3))) == 3
    assert await count(services, NodeReadingRow) == 2


async def test_what_cannot_be_stored_is_refused_and_nothing_of_it_is_kept(services: Services, agent: httpx.AsyncClient) -> None:
    answer = await post(agent, sent(record(1), record(2, power=1e30)))
    assert answer.status_code == 422
    assert "gpu:0 power_watts" in answer.json()["detail"]
    assert await count(services, NodeReadingRow) == 0


async def test_an_upload_without_readings_answers_without_them(agent: httpx.AsyncClient) -> None:
    answer = await agent.post(UPLOAD_PATH, content=b'{"batches": []}')
    assert msgspec.json.decode(answer.content, type=UploadReply).readings is None


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (sent(record(1), spool=-1), "spool -1"),
        (sent(record(2), record(2)), "record 2 follows record 2"),
        (sent(record(0)), "record 0"),
        (sent(record(1, time=NOW.timestamp() + 90_000)), "1 day ahead"),
        (sent(record(1, time=-10.0)), "do not grow"),
        (sent(ReadingRecord(seq=1, times=[], columns={})), "0 readings"),
        (sent(ReadingRecord(seq=1, times=[2.0, 1.0], columns={})), "do not grow"),
        (sent(ReadingRecord(seq=1, times=[1.0], columns={"gpu:0": {"power_watts": [1.0, 2.0]}})), "2 values of gpu:0 power_watts"),
        (sent(ReadingRecord(seq=1, times=[1.0], columns={"net:" + "x" * 99: {}})), "103 characters"),
        (sent(ReadingRecord(seq=1, times=[1.0], columns={"net:\0": {}})), "NUL"),
        (sent(record(1, power=float("nan"))), "power_watts is not a number"),
        (sent(ReadingRecord(seq=1, times=[1.0], columns={f"gpu:{index}": {} for index in range(300)})), "300 subjects"),
    ],
)
def test_a_refusal_names_the_value(bad: NodeReadings, why: str) -> None:
    assert why in (why_refused(bad, NOW) or "")


def test_metrics_that_are_not_known_here_are_no_reason_to_refuse() -> None:
    assert why_refused(sent(ReadingRecord(seq=1, times=[1.0], columns={"gpu:0": {"colour": [1.0]}, "fan:0": {"x": [None]}})), NOW) is None
