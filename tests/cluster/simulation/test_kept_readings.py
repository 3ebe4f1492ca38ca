"""Readings in memory: sent by a real agent's uploader, exactly once, and bounded while the coordinator is away."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from paceline.cluster.agent.upload.delivery import UploadFailedError
from paceline.cluster.agent.upload.readings_uploader import ReadingsUploader
from paceline.cluster.simulation.kept_readings import MOST_SPOOLS, SPOOL_RECORDS, KeptReadings
from paceline.monitoring.points import Upload, UploadReply
from paceline.monitoring.readings import Reading


def kept(records: int) -> KeptReadings:
    readings = KeptReadings()
    for second in range(records):
        readings.append([Reading(float(second), {"host": {"load_1m": 1.0}})])
    return readings


def test_records_are_numbered_by_spool_and_forgotten_when_they_are_acknowledged() -> None:
    readings = kept(SPOOL_RECORDS + 1)
    first = readings.parcel(1 << 20)
    assert first is not None
    assert [record.seq for record in first.readings.records] == list(range(1, SPOOL_RECORDS + 1))
    assert not readings.acknowledge(first, SPOOL_RECORDS + 1)  # was not sent
    assert readings.acknowledge(first, 2)
    assert readings.acknowledge(first, 2)  # harmless the second time
    rest = readings.parcel(1)
    assert rest is not None
    assert [record.seq for record in rest.readings.records] == [3]  # one fits always
    readings.acknowledge(first, SPOOL_RECORDS)
    last = readings.parcel(1 << 20)
    assert last is not None
    assert [(record.seq, record.times) for record in last.readings.records] == [(1, [float(SPOOL_RECORDS)])]
    assert last.readings.spool > first.readings.spool


def test_the_oldest_readings_are_given_up_where_too_many_wait() -> None:
    readings = kept(SPOOL_RECORDS * MOST_SPOOLS + 1)
    oldest = readings.parcel(1 << 20)
    assert oldest is not None
    assert oldest.readings.records[0].times == [float(SPOOL_RECORDS)]
    for second in range(SPOOL_RECORDS):
        readings.append([Reading(1e6 + second, {})])
    assert readings.acknowledge(oldest, 3)  # it is under way as it is given up


async def test_what_is_recorded_while_the_coordinator_is_away_arrives_once() -> None:
    stored: list[float] = []
    answers = iter([503])

    def answer(request: httpx.Request) -> httpx.Response:
        if (refused := next(answers, None)) is not None:
            return httpx.Response(refused)
        sent = msgspec.json.decode(request.content, type=Upload).readings
        assert sent is not None
        stored.extend(time for record in sent.records for time in record.times)
        return httpx.Response(200, content=msgspec.json.encode(UploadReply(acknowledged=[], readings=sent.records[-1].seq)))

    async with httpx.AsyncClient(base_url="http://coordinator", transport=httpx.MockTransport(answer)) as http:
        uploader = ReadingsUploader(http, kept(SPOOL_RECORDS + 5))
        with pytest.raises(UploadFailedError):
            await uploader.finish()
        await uploader.finish()
    assert stored == [float(second) for second in range(SPOOL_RECORDS + 5)]
