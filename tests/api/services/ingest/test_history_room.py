"""The room that reports of a job's ranks have in its history."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.api.core.context import Services
from paceline.api.core.disk import DiskWatch
from paceline.api.core.identity import SYSTEM
from paceline.api.services.ingest import history_room
from paceline.api.services.ingest.history_room import HistoryRoom
from paceline.api.services.lifecycle import events
from paceline.db.repositories import events as event_rows


async def test_two_coordinators_share_the_room_and_it_survives_a_restart(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_room, "MAX_JOB_EVENTS", 10)
    monkeypatch.setattr(history_room, "PORTION", 3)
    both = [HistoryRoom(DiskWatch(None)) for _ in range(2)]
    async with services.write() as session:
        for room in both * 20:
            if await room.take(session, "crowded") is None:
                await events.record(session, type="job.evaluated", actor=SYSTEM, cause="", message="", job_id="crowded")
        assert 10 <= await event_rows.count_of_job(session, "crowded", 100) <= 13, "at most a portion too many"
        restarted = HistoryRoom(DiskWatch(None))
        assert "has 10 events" in (await restarted.take(session, "crowded") or "")
        assert await restarted.take(session, "another") is None


async def test_events_are_counted_once_for_each_portion(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_room, "PORTION", 3)
    counted: list[str] = []

    async def count(_: object, job_id: str, __: int) -> int:
        counted.append(job_id)
        return 0 if job_id == "quiet" else history_room.MAX_JOB_EVENTS

    monkeypatch.setattr(event_rows, "count_of_job", count)
    room = HistoryRoom(DiskWatch(None))
    async with services.write() as session:
        assert [await room.take(session, "quiet") for _ in range(6)] == [None] * 6
        assert None not in [await room.take(session, "full") for _ in range(6)]
    assert counted == ["quiet", "quiet", "full"]


async def test_what_is_remembered_is_bounded(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_room, "MAX_REMEMBERED", 3)
    room = HistoryRoom(DiskWatch(None))
    async with services.write() as session:
        for number in range(10):
            assert await room.take(session, f"job-{number}") is None
    assert [job_id for job_id, _ in room._left] == ["job-7", "job-8", "job-9"]


async def test_essential_reports_have_room_after_the_others_and_an_end_that_is_told_once(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_room, "MAX_JOB_EVENTS", 5)
    monkeypatch.setattr(history_room, "MAX_EVENTS_WITH_ESSENTIAL", 10)
    monkeypatch.setattr(history_room, "PORTION", 3)
    both = [HistoryRoom(DiskWatch(Path(), usage=lambda _: (100, 100, 0))) for _ in range(2)]
    async with services.write() as session:
        for _ in range(5):
            await events.record(session, type="job.evaluated", actor=SYSTEM, cause="", message="", job_id="crowded")
        for room in both * 20:
            assert await room.take(session, "crowded", on_low_disk=True) is not None
            if await room.take_essential(session, "crowded") is None:
                await events.record(session, type="checkpoint.failed", actor=SYSTEM, cause="", message="", job_id="crowded")
        assert await HistoryRoom(DiskWatch(None)).take_essential(session, "crowded") is not None, "after a restart"
        types = [row.type for row in await event_rows.after(session, 0, limit=100)]
    assert 5 <= types.count("checkpoint.failed") <= 8, "at most a portion too many"
    assert types.count("job.history_full") == 1


async def test_on_a_nearly_full_disk_only_what_other_views_need_has_room(services: Services) -> None:
    room = HistoryRoom(DiskWatch(Path(), usage=lambda _: (100, 100, 0)))
    async with services.write() as session:
        assert "PACELINE_DISK_LOW" in (await room.take(session, "job") or "")
        assert await room.take(session, "job", on_low_disk=True) is None
