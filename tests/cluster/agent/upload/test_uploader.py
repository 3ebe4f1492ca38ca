"""Uploads against a real HTTP coordinator in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from paceline.cluster.agent.upload import uploader as uploader_module
from paceline.cluster.agent.upload.delivery import UploadFailedError
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.agent.upload.uploader import EVENT_RECORDS, LOG_RECORDS, MAX_RECORDS, Uploader
from paceline.cluster.protocol import RankKey
from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolWriter
from paceline.training.rank_folder import RankFolder
from tests.cluster.agent.coordinator import CREDENTIAL, Coordinator, pauses_for_an_hour
from tests.waiting import until

TIMEOUT_SECONDS = 20.0
KEY = RankKey("job", 1, 0)


class Setup:
    def __init__(self, http: httpx.AsyncClient, data: Path) -> None:
        self.drained: list[RankKey] = []
        self.uploader = Uploader(http, self.drained.append)
        self.data = data

    def rank(self, key: RankKey = KEY, steps: int = 0, lines: int = 0, events: int = 0) -> RankFolder:
        folder = RankFolder(self.data, *key)
        folder.path.mkdir(parents=True)
        writer = SpoolWriter(folder.metrics)
        for step in range(1, steps + 1):
            writer.append(msgspec.json.encode(MetricRecord(seq=step, step=step, time=0.0, values={"loss": 1.0})))
        writer.close()
        told = SpoolWriter(folder.events)
        for number in range(1, events + 1):
            told.append(msgspec.json.encode(RankEvent(seq=number, time=0.0, kind="evaluated", data={"step": number})))
        told.close()
        folder.output.write_text("".join(f"line {number}\n" for number in range(lines)))
        self.uploader.follow(key, RankSpool(folder, key))
        return folder


@pytest.fixture
async def setup(coordinator: Coordinator, tmp_path: Path) -> AsyncIterator[Setup]:
    async with httpx.AsyncClient(base_url=coordinator.url, headers={"Authorization": f"Bearer {CREDENTIAL}"}) as http:
        yield Setup(http, tmp_path)


async def test_a_flood_of_logs_does_not_hold_up_metrics(setup: Setup, coordinator: Coordinator) -> None:
    setup.rank(RankKey("noisy", 1, 0), lines=20_000)
    setup.rank(RankKey("quiet", 1, 0), steps=10)
    assert await setup.uploader.upload_once()
    assert len(coordinator.of("quiet").streams["metrics"]) == 10
    assert len(coordinator.of("noisy").text) == MAX_RECORDS - 10


async def test_a_flood_of_metrics_leaves_room_for_logs(setup: Setup, coordinator: Coordinator) -> None:
    setup.rank(steps=6_000, lines=5)
    await setup.uploader.upload_once()
    assert len(coordinator.of("job").text) == 5
    await setup.uploader.finish()
    assert len(coordinator.of("job").streams["metrics"]) == 6_000


async def test_a_flood_of_events_leaves_room_for_metrics_and_logs(setup: Setup, coordinator: Coordinator) -> None:
    """A script may write what it likes into the spool of its events: another job on the node had no point until it was through with it."""
    setup.rank(RankKey("noisy", 1, 0), events=6_000)
    setup.rank(RankKey("quiet", 1, 0), steps=10, lines=5)
    await setup.uploader.upload_once()
    assert (len(coordinator.of("quiet").streams["metrics"]), len(coordinator.of("quiet").text)) == (10, 5)
    assert len(coordinator.of("noisy").streams["events"]) == EVENT_RECORDS


async def test_every_rank_has_its_share_of_an_upload(setup: Setup, coordinator: Coordinator) -> None:
    """One of two had to wait while the other one logged more than an upload holds."""
    flooding = [f"noisy{number}" for number in range(7)]
    for job in flooding:
        setup.rank(RankKey(job, 1, 0), steps=5_000)
    setup.rank(RankKey("quiet", 1, 0), steps=10)
    await setup.uploader.upload_once()
    assert len(coordinator.of("quiet").streams["metrics"]) == 10
    shares = [len(coordinator.of(job).streams["metrics"]) for job in flooding]
    assert sum(shares) == MAX_RECORDS - LOG_RECORDS - 10
    assert max(shares) - min(shares) <= 1


async def test_a_rank_is_drained_once_when_it_has_exited_and_all_is_acknowledged(setup: Setup, coordinator: Coordinator) -> None:
    folder = setup.rank(steps=3, lines=2)
    await setup.uploader.finish()
    assert setup.drained == []
    setup.uploader.exited(KEY)
    folder.output.write_text(folder.output.read_text() + "last words")
    await setup.uploader.finish()
    await setup.uploader.finish()
    assert setup.drained == [KEY]
    assert coordinator.of("job").text[-1] == "last words"
    assert folder.acknowledged.exists()


async def test_a_rank_that_left_nothing_is_drained_too(setup: Setup) -> None:
    setup.rank()
    setup.uploader.exited(KEY)
    await setup.uploader.finish()
    assert setup.drained == [KEY]


async def test_records_that_are_damaged_are_not_lost_in_silence(setup: Setup, coordinator: Coordinator) -> None:
    folder = setup.rank(steps=9, lines=1)
    content = bytearray(folder.metrics.read_bytes())
    content[len(content) // 2] ^= 0xFF
    folder.metrics.write_bytes(content)
    setup.uploader.exited(KEY)
    await setup.uploader.finish()
    await setup.uploader.finish()
    assert len(coordinator.of("job").streams["metrics"]) == 4
    last = coordinator.of("job").streams["logs"][-1]
    assert last.level == "error"
    assert f"{folder.metrics} is damaged at byte" in last.text
    assert len(coordinator.of("job").streams["logs"]) == 2
    assert setup.drained == [KEY]


async def test_nothing_is_lost_while_the_coordinator_refuses(setup: Setup, coordinator: Coordinator) -> None:
    setup.rank(steps=5)
    coordinator.accept_uploads = False
    with pytest.raises(UploadFailedError, match="503"):
        await setup.uploader.upload_once()
    assert setup.uploader.backlog() > 0
    coordinator.accept_uploads = True
    await setup.uploader.finish()
    assert len(coordinator.of("job").streams["metrics"]) == 5
    assert setup.uploader.backlog() == 0


async def test_an_absent_coordinator_is_tried_again(setup: Setup, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader_module, "FIRST_RETRY_SECONDS", 0.01)
    setup.rank(steps=5)
    await coordinator.stop()
    with pytest.raises(UploadFailedError):
        await setup.uploader.upload_once()
    running = asyncio.create_task(setup.uploader.run())
    await coordinator.start()
    await coordinator.until(lambda c: len(c.of("job").streams["metrics"]) == 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_uploads_do_not_wait_out_their_pause_when_the_coordinator_is_back(
    setup: Setup, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader_module, "Backoff", pauses_for_an_hour)
    setup.rank(steps=5)
    await coordinator.stop()
    failed = asyncio.Event()
    monkeypatch.setattr(setup.uploader, "_report_failure", lambda error: failed.set())
    running = asyncio.create_task(setup.uploader.run())
    await asyncio.wait_for(failed.wait(), TIMEOUT_SECONDS)
    await coordinator.start()
    setup.uploader.retry()
    await coordinator.until(lambda c: len(c.of("job").streams["metrics"]) == 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_nudge_is_sent_at_once(setup: Setup, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader_module, "POLL_SECONDS", 3600.0)
    running = asyncio.create_task(setup.uploader.run())
    await until(lambda: setup.uploader._news._waiters, "the wait for news")
    setup.rank(steps=1)
    setup.uploader.nudge()
    await coordinator.until(lambda c: c.of("job").streams["metrics"])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
