"""What no event records is told once for each time that it begins: a long wait, a full disk, lost goodput."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from paceline.api.core.disk import DiskWatch
from paceline.api.errors import ProblemError
from paceline.api.loops.due_looks import DueLooks
from paceline.api.loops.notifications import NotificationWatch
from paceline.api.schemas.goodput import Goodput
from paceline.api.services.notifications import looks
from paceline.cluster.states import JobState
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import notifications as rows
from tests.api.services.notifications.conftest import NEWS, News
from tests.factories import START

MINUTE = timedelta(minutes=1)


async def titles(news: News) -> list[str]:
    return [each["title"] for each in await news.deliveries()]


async def test_a_job_that_waits_is_told_once_for_each_time_that_it_is_queued(news: News) -> None:
    await news.channel()
    await news.rule("queued_long", queued_minutes=30)
    job = await news.job("gpt", JobState.QUEUED, pending={"code": "no_room", "text": "8 of 8 slots are in use"})
    await news.job("runs")
    await looks.at_queue(news.services, START + 29 * MINUTE)
    assert await titles(news) == []
    for minutes in (30, 31, 600):
        await looks.at_queue(news.services, START + minutes * MINUTE)
    assert await titles(news) == ["Job gpt waits for slots for 30 min 00 s: 8 of 8 slots are in use"]
    async with news.services.write() as session:
        session.add(job)
        job.queued_at = job.state_since = START + 700 * MINUTE
    await looks.at_queue(news.services, START + 720 * MINUTE)
    assert len(await titles(news)) == 1
    await looks.at_queue(news.services, START + 740 * MINUTE)
    assert len(await titles(news)) == 2


async def test_a_job_that_waits_for_another_size_is_told_by_its_wait_and_not_by_its_first_turn_in_the_queue(news: News) -> None:
    await news.channel()
    await news.rule("queued_long", queued_minutes=30)
    await news.job("gpt", JobState.QUEUED, state_since=START + 360 * MINUTE)  # queued at START, it has run for six hours
    await looks.at_queue(news.services, START + 361 * MINUTE)
    assert await titles(news) == []
    await looks.at_queue(news.services, START + 390 * MINUTE)
    assert await titles(news) == ["Job gpt waits for slots for 30 min 00 s"]


async def test_a_job_that_waits_for_slots_after_a_fault_is_told(news: News) -> None:
    await news.channel()
    await news.rule("queued_long", queued_minutes=30)
    pending = {"code": "no_room", "text": "8 of 8 slots are in use"}
    await news.job("gpt", JobState.RECOVERING, state_since=START + 60 * MINUTE, pending=pending)
    await news.job("starts", JobState.RECOVERING)
    await looks.at_queue(news.services, START + 95 * MINUTE)
    assert await titles(news) == ["Job gpt waits for slots for 35 min 00 s: 8 of 8 slots are in use"]


async def test_each_rule_has_its_own_patience(news: News) -> None:
    await news.channel()
    await news.rule("queued_long", queued_minutes=5)
    await news.rule("queued_long", queued_minutes=60)
    await news.job("gpt", JobState.QUEUED)
    counts = []
    for minutes in (4, 6, 59, 61, 100):
        await looks.at_queue(news.services, START + minutes * MINUTE)
        counts.append(len(await titles(news)))
    assert counts == [0, 1, 1, 2, 2]


@dataclass
class FakeDisk:
    free: int = 100

    def usage(self, _: Path) -> tuple[int, int, int]:
        return 1000, 1000 - self.free, self.free


async def test_a_full_disk_is_told_until_it_is_over_whatever_restarts_meanwhile(news: News, tmp_path: Path) -> None:
    await news.channel()
    await news.rule("disk_low")
    disk, counts = FakeDisk(), []
    for free in (100, 10, 9, 8, 100, 100, 5):
        disk.free = free
        # A watch of its own each time, as after a restart of the coordinator.
        services = replace(news.services, disk=DiskWatch(tmp_path, 50, disk.usage, look_every_seconds=0.0))
        await looks.at_disk(services, START + len(counts) * MINUTE)
        counts.append(len(await titles(news)))
    assert counts == [0, 1, 1, 1, 1, 1, 2]
    assert (await titles(news))[0].startswith("The coordinator's disk is nearly full")


@dataclass
class ScriptedReads:
    """Answers questions about goodput."""

    goodput: dict[str, float | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    errors: dict[str, Exception] = field(default_factory=dict)

    async def get(self, question: Any, now: Any) -> Goodput:
        (job_id,) = question.job_ids
        self.asked.append(job_id)
        if job_id in self.errors:
            raise self.errors[job_id]
        value = self.goodput.get(job_id)
        return Goodput(
            job_id=job_id, goodput=value, text=f"{value:.1%} of the time" if value is not None else "no step", since=START, until=START, wall_seconds=1,
            paused_seconds=0, queued_seconds=0, useful_steps=1, redone_steps=0, parts=[], incidents=[], resolution_steps=1,
        )  # fmt: skip


@pytest.fixture
def reads() -> ScriptedReads:
    return ScriptedReads()


async def test_lost_goodput_is_told_once_until_it_has_come_back(news: News, reads: ScriptedReads) -> None:
    await news.channel()
    await news.rule("goodput_low", goodput_below=0.8)
    job = await news.job("gpt", started_at=START)
    look, counts = looks.GoodputLook(news.services, reads), []  # type: ignore[arg-type]
    for number, value in enumerate((0.9, 0.79, 0.5, 0.81, 0.79, 0.83, 0.7, None)):
        reads.goodput[job.id] = value
        if number == 3:  # a restart of the coordinator
            look = looks.GoodputLook(news.services, reads)  # type: ignore[arg-type]
        await look.look(START + (10 + number) * MINUTE)
        counts.append(len(await titles(news)))
    assert counts == [0, 1, 1, 1, 1, 1, 2, 2]
    assert (await titles(news))[0] == "Job gpt loses goodput: 79.0% of the time"


async def test_lost_goodput_is_not_told_again_after_a_recovery_or_a_pause(news: News, reads: ScriptedReads) -> None:
    await news.channel()
    await news.rule("goodput_low", goodput_below=0.8)
    job = await news.job("gpt", started_at=START)
    reads.goodput[job.id] = 0.5
    look = looks.GoodputLook(news.services, reads)  # type: ignore[arg-type]
    states = (JobState.RUNNING, JobState.RECOVERING, JobState.RUNNING, JobState.PAUSED, JobState.QUEUED, JobState.RUNNING)
    for minute, state in enumerate(states):
        async with news.services.write() as session:
            session.add(job)
            job.state = state
        await look.look(START + (20 + minute) * MINUTE)
    assert len(await titles(news)) == 1


async def test_lost_goodput_is_forgotten_with_the_rule_that_asked(news: News, reads: ScriptedReads) -> None:
    await news.channel()
    rule = await news.rule("goodput_low")
    job = await news.job("gpt", started_at=START)
    reads.goodput[job.id] = 0.1
    look = looks.GoodputLook(news.services, reads)  # type: ignore[arg-type]
    await look.look(START + 20 * MINUTE)
    assert (await news.client.delete(f"{NEWS}/rules/{rule['id']}")).status_code == 204
    await look.look(START + 21 * MINUTE)
    async with news.services.control.read() as session:
        assert await rows.conditions(session) == set()


async def test_a_job_that_has_just_started_is_not_looked_at(news: News, reads: ScriptedReads) -> None:
    await news.channel()
    await news.rule("goodput_low")
    await news.job("gpt", started_at=START)
    await looks.GoodputLook(news.services, reads).look(START + 9 * MINUTE)  # type: ignore[arg-type]
    assert reads.asked == []


async def test_many_jobs_have_their_turns(news: News, reads: ScriptedReads) -> None:
    await news.channel()
    await news.rule("goodput_low")
    jobs = [await news.job(f"j-{n}", started_at=START) for n in range(45)]
    look = looks.GoodputLook(news.services, reads)  # type: ignore[arg-type]
    for minute in range(3):
        await look.look(START + (20 + minute) * MINUTE)
    assert sorted(reads.asked) == sorted(job.id for job in jobs)


async def test_a_condition_of_a_job_that_has_ended_is_forgotten(news: News, reads: ScriptedReads) -> None:
    await news.channel()
    await news.rule("goodput_low")
    job = await news.job("gpt", started_at=START)
    reads.goodput[job.id] = 0.1
    look = looks.GoodputLook(news.services, reads)  # type: ignore[arg-type]
    await look.look(START + 20 * MINUTE)
    async with news.services.write() as session:
        session.add(job)
        job.state = JobState.COMPLETED
    await look.look(START + 21 * MINUTE)
    async with news.services.control.read() as session:
        assert await rows.conditions(session) == set()


async def test_the_loop_reads_the_history_and_looks_around(news: News, reads: ScriptedReads) -> None:
    await news.channel()
    await news.rule("failed", "queued_long", "goodput_low")
    await news.end(await news.job("fails"))
    await news.job("waits", JobState.QUEUED)
    slow = await news.job("slow", started_at=START)
    reads.goodput[slow.id] = 0.2
    watch = NotificationWatch(news.services, reads, DueLooks(news.services))  # type: ignore[arg-type]
    await watch.step_once(START + 60 * MINUTE)
    await watch.step_once(START + 60 * MINUTE)
    assert sorted(title.split()[1] for title in await titles(news)) == ["fails", "slow", "waits"]


async def test_the_loop_looks_around_at_once_after_the_clock_was_set_back(news: News, reads: ScriptedReads) -> None:
    """A coordinator that had started a day ahead told of no queue, no disk and no lost goodput for that day."""
    await news.channel()
    await news.rule("queued_long", "goodput_low")
    watch = NotificationWatch(news.services, reads, DueLooks(news.services))  # type: ignore[arg-type]
    await watch.step_once(START + timedelta(days=1))
    await news.job("waits", JobState.QUEUED)
    slow = await news.job("slow", started_at=START)
    reads.goodput[slow.id] = 0.2
    await watch.step_once(START + 60 * MINUTE)
    assert sorted(title.split()[1] for title in await titles(news)) == ["slow", "waits"]


async def test_many_waiting_jobs_of_another_project_do_not_hide_one(news: News, monkeypatch: pytest.MonkeyPatch) -> None:
    await news.channel()
    await news.rule("queued_long", project="vision")
    monkeypatch.setattr(looks, "JOBS_TOLD_AT_ONCE", 2)
    for n in range(5):
        await news.job(f"text-{n}", JobState.QUEUED, project="text")
    for n in range(5):
        await news.job(f"vision-{n}", JobState.QUEUED, project="vision")
    counts = []
    for minute in range(4):
        await looks.at_queue(news.services, START + (40 + minute) * MINUTE)
        counts.append(len(await titles(news)))
    assert counts == [2, 4, 5, 5]


async def test_the_longest_wait_is_told_first(news: News) -> None:
    """Jobs came as they lie in the database, which on PostgreSQL is in no order once a job has changed."""
    await news.channel()
    await news.rule("queued_long", queued_minutes=30)
    first = await news.job("first", JobState.QUEUED)
    await news.job("second", JobState.QUEUED, state_since=START + MINUTE)
    async with news.services.write() as session:
        await session.execute(update(JobRow).where(JobRow.id == first.id).values(notes="changed"))
    await looks.at_queue(news.services, START + 40 * MINUTE)
    assert [title.split()[1] for title in await titles(news)] == ["first", "second"]


async def test_a_job_whose_goodput_cannot_be_computed_keeps_no_other_from_being_told(
    news: News, reads: ScriptedReads, caplog: pytest.LogCaptureFixture
) -> None:
    """Those behind it had no turn in this look, nor in any other, as long as there were no more than one look takes."""
    caplog.set_level("CRITICAL")
    await news.channel()
    await news.rule("goodput_low", goodput_below=0.8)
    bad, good = sorted([await news.job(name, started_at=START) for name in ("a", "b")], key=lambda job: job.id)
    reads.goodput = {bad.id: 0.5, good.id: 0.5}
    reads.errors[bad.id] = KeyError("planned")
    look = looks.GoodputLook(news.services, reads)  # type: ignore[arg-type]
    for minute in (20, 21):
        await look.look(START + minute * MINUTE)
    assert [each["job_id"] for each in await news.deliveries()] == [good.id]
    async with news.services.control.read() as session:
        told = list(await session.scalars(select(EventRow.job_id).where(EventRow.type == "job.held_up")))
    assert told == [bad.id]
    reads.errors[bad.id] = ProblemError("busy", "users' questions come first")
    await look.look(START + 22 * MINUTE)
    assert reads.asked[-1] == bad.id, "the next look tries again"
    del reads.errors[bad.id]
    await look.look(START + 23 * MINUTE)
    assert [each["job_id"] for each in await news.deliveries()] == [good.id, bad.id]
    assert news.services.troubles.held_up("job") == 0
