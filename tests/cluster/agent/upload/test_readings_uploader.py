"""Readings reach a real HTTP coordinator once each, also after it was away, and one that is refused holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from paceline.cluster.agent.upload.delivery import UploadFailedError
from paceline.cluster.agent.upload.readings_spool import ReadingsSpool
from paceline.cluster.agent.upload.readings_uploader import ReadingsUploader
from paceline.monitoring.points import Upload
from paceline.monitoring.readings import Reading
from tests.cluster.agent.coordinator import CREDENTIAL, Coordinator


@pytest.fixture
async def http(coordinator: Coordinator) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=coordinator.url, headers={"Authorization": f"Bearer {CREDENTIAL}"}) as client:
        yield client


def spool_of(folder: Path, seconds: int) -> ReadingsSpool:
    spool = ReadingsSpool(folder)
    for second in range(seconds):
        spool.append([Reading(float(second), {"host": {"cpu_percent": float(second)}})])
    return spool


def seen(coordinator: Coordinator) -> list[float]:
    return [time for record in coordinator.readings for time in record.times]


async def test_everything_arrives_once_also_after_the_coordinator_was_away(
    http: httpx.AsyncClient, coordinator: Coordinator, tmp_path: Path
) -> None:
    spool = spool_of(tmp_path, 3)
    uploader = ReadingsUploader(http, spool)
    coordinator.accept_uploads = False
    with pytest.raises(UploadFailedError, match="503"):
        await uploader.finish()
    coordinator.accept_uploads = True
    spool.append([Reading(3.0, {"host": {"cpu_percent": 3.0}})])
    await uploader.finish()
    assert seen(coordinator) == [0.0, 1.0, 2.0, 3.0]
    await uploader.finish()
    assert seen(coordinator) == [0.0, 1.0, 2.0, 3.0]


async def test_an_answer_that_got_lost_costs_a_duplicate_that_is_dropped(
    http: httpx.AsyncClient, coordinator: Coordinator, tmp_path: Path
) -> None:
    spool = spool_of(tmp_path, 2)
    await ReadingsUploader(http, spool).finish()
    (tmp_path / "acknowledged.json").unlink()
    spool.close()
    await ReadingsUploader(http, ReadingsSpool(tmp_path)).finish()
    assert seen(coordinator) == [0.0, 1.0]


async def test_a_coordinator_of_the_version_before_leaves_readings_on_the_node(
    http: httpx.AsyncClient, coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator.takes_readings = False
    uploader = ReadingsUploader(http, spool_of(tmp_path, 2))
    with pytest.raises(UploadFailedError, match="keeps no readings"):
        await uploader.finish()
    coordinator.takes_readings = True
    await uploader.finish()
    assert seen(coordinator) == [0.0, 1.0]


async def test_a_record_that_is_refused_is_passed_over_alone(http: httpx.AsyncClient, coordinator: Coordinator, tmp_path: Path) -> None:
    def refuse(upload: Upload, body: bytes) -> int | None:
        records = upload.readings.records if upload.readings else []
        return 400 if any(record.times == [4.0] for record in records) else None

    coordinator.refuse = refuse
    await ReadingsUploader(http, spool_of(tmp_path, 9)).finish()
    assert seen(coordinator) == [0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0]


async def test_a_proxy_that_refuses_everything_costs_nothing(http: httpx.AsyncClient, coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.refuse = lambda upload, body: 413
    uploader = ReadingsUploader(http, spool_of(tmp_path, 4))
    with pytest.raises(UploadFailedError, match="even an empty upload"):
        await uploader.finish()
    coordinator.refuse = lambda upload, body: None
    await uploader.finish()
    assert seen(coordinator) == [0.0, 1.0, 2.0, 3.0]


async def test_an_error_without_a_text_of_its_own_is_named(tmp_path: Path) -> None:
    def time_out(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    async with httpx.AsyncClient(base_url="http://coordinator", transport=httpx.MockTransport(time_out)) as http:
        with pytest.raises(UploadFailedError, match="upload: ReadTimeout"):
            await ReadingsUploader(http, spool_of(tmp_path, 1)).finish()


async def test_it_sends_what_an_earlier_agent_has_left_without_being_nudged(
    http: httpx.AsyncClient, coordinator: Coordinator, tmp_path: Path
) -> None:
    spool_of(tmp_path, 2).close()
    sending = asyncio.create_task(ReadingsUploader(http, ReadingsSpool(tmp_path)).run())
    try:
        await coordinator.until(lambda each: len(each.readings) == 2)
    finally:
        sending.cancel()
