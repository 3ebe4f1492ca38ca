"""What is old goes in one pass: files when their job has been over for long, curves of ended jobs; with one word about many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.loops.storage import StorageKeeper
from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import events
from paceline.api.services.storage import aging
from paceline.api.services.storage.files import JOBS_AT_ONCE
from paceline.api.services.storage.keeping import DeletionPace, RetentionSweep
from paceline.cluster.history.storage import CURVES
from paceline.cluster.states import JobState, RankState
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankEventMarkRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import storage
from tests import factories
from tests.factories import START

DAY = timedelta(days=1)
#: Of a pass, on a machine that is busy with other things.
PATIENCE = 60.0


@pytest.fixture
async def node(services: Services) -> NodeRow:
    async with services.write() as session:
        return (await factories.create_node(session))[0]


async def ended_job(services: Services, ended_at: datetime = START) -> JobRow:
    async with services.write() as session:
        return await factories.create_job(session, state=JobState.COMPLETED, generation=1, ended_at=ended_at)


async def leave(services: Services, job: JobRow, node: NodeRow, kind: str, count: int = 1, **columns: Any) -> None:
    """Artifacts of the steps 0, 1, ... that are stored at START."""
    facts: dict[str, Any] = {"rank": 0, "bytes": 10, "sha256": "0" * 64, "created_at": START, "stored_at": START}
    place: dict[str, Any] = {"job_id": job.id, "generation": 1, "node_id": node.id, "kind": kind}
    async with services.write() as session:
        for step in range(count):
            session.add(ArtifactRow(**place, name=f"{kind}-{step}", first_step=step, last_step=step, **(facts | columns)))


async def faults(services: Services, job: JobRow, node: NodeRow, generations: range, pid: int | None = 7) -> None:
    """Generations that one rank each has ended: a row and an event of each, and that of a save."""
    async with services.write() as session:
        for number in generations:
            session.add(GenerationRow(job_id=job.id, generation=number, world_size=1, started_at=START, store_token="t"))
            await session.flush()
            place = {"job_id": job.id, "generation": number, "rank": 0}
            where = {"node_id": node.id, "slot": 0, "local_rank": 0, "node_rank": 0, "updated_at": START, "pid": pid}
            session.add(RankRow(**place, **where, state=RankState.EXITED, drained=True))
            session.add(RankEventMarkRow(**place, seq=5))
            for type in ("rank.exited", "checkpoint.committed"):
                await events.record(session, type=type, actor=SYSTEM, cause="", message=f"{type} {number}", job_id=job.id, time=START)


async def ranks_of(services: Services, job: JobRow) -> tuple[list[int], list[int]]:
    """(the generations of a job with a rank, those with a mark of its events)."""
    async with services.control.read() as session:
        found = [await session.scalars(select(row.generation).where(row.job_id == job.id)) for row in (RankRow, RankEventMarkRow)]
    return tuple(sorted(each) for each in found)  # type: ignore[return-value]


async def test_a_job_that_lives_through_ever_more_faults_keeps_the_ranks_of_its_newest_generations(
    services: Services, node: NodeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were kept until a month after its end, which for such a job never comes."""
    monkeypatch.setattr(aging, "MAX_GENERATIONS", 3)
    async with services.write() as session:
        living, waiting = [await factories.create_job(session, state=JobState.RUNNING, generation=10) for _ in range(2)]
    await faults(services, living, node, range(1, 10))
    await faults(services, waiting, node, range(1, 3))
    await faults(services, waiting, node, range(3, 10), pid=None)  # it has run in generation 2 for the last time: its folder is there
    async with services.write() as session:
        (undrained,) = await session.scalars(select(RankRow).where(RankRow.job_id == living.id, RankRow.generation == 4))
        undrained.drained = False
    await StorageKeeper(services, PATIENCE).step_once(START)
    assert await ranks_of(services, living) == ([4, 8, 9], [4, 8, 9])
    assert await ranks_of(services, waiting) == ([*range(2, 10)], [*range(2, 10)])


async def test_a_job_that_lives_through_ever_more_faults_keeps_its_newest_events(
    services: Services, node: NodeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all that its goodput goes by, and all that people did."""
    monkeypatch.setattr(aging, "MAX_REPEATED_EVENTS", 4)
    monkeypatch.setattr(aging, "EVENTS_AT_ONCE", 3)
    async with services.write() as session:
        living = await factories.create_job(session, state=JobState.RUNNING, generation=10)
        few = await factories.create_job(session, state=JobState.RUNNING, generation=3)
        for type, actor in (("job.running", SYSTEM), ("checkpoint.pinned", Actor(kind="user", id="u", name="ann"))):
            await events.record(session, type=type, actor=actor, cause="", message="stays", job_id=living.id, time=START)
    await faults(services, living, node, range(1, 10))
    await faults(services, few, node, range(1, 3))
    await StorageKeeper(services, PATIENCE).step_once(START)
    async with services.control.read() as session:
        left = {job.id: list(await session.scalars(select(EventRow.message).where(EventRow.job_id == job.id))) for job in (living, few)}
    newest = [f"{type} {number}" for number in (8, 9) for type in ("rank.exited", "checkpoint.committed")]
    assert sorted(left[living.id]) == sorted(["stays", "stays", *newest])
    assert len(left[few.id]) == 4


async def kinds(services: Services) -> list[str]:
    async with services.control.read() as session:
        return sorted(await session.scalars(select(ArtifactRow.kind)))


async def sweep(services: Services, now: datetime) -> None:
    """One pass over the files, with the settings as they come."""
    await aging.old_artifacts(RetentionSweep(services, now, DeletionPace.of(PATIENCE)), services.settings.keep)


async def test_files_of_a_long_job_stay_for_90_days_after_its_end(services: Services, node: NodeRow) -> None:
    """Their age counted from when they were stored: those of a job of four months went within an hour of its end."""
    job = await ended_job(services, START + 120 * DAY)
    for kind in ("gradients", "media", "trace"):
        await leave(services, job, node, kind)
    await leave(services, job, node, "file", path="rank0/config.json", folder="rank0")
    await sweep(services, START + 121 * DAY)
    assert await kinds(services) == ["file", "gradients", "media", "trace"]
    await sweep(services, START + 211 * DAY)
    assert await kinds(services) == []


async def test_one_pass_deletes_all_that_is_old(services: Services, node: NodeRow) -> None:
    """It was 50 artifacts and the files of 20 jobs an hour: more came in than went."""
    job = await ended_job(services)
    await leave(services, job, node, "media", count=2 * aging.BATCH + 1)
    await leave(services, job, node, "trace", count=aging.BATCH + 1, stored_at=None)
    for _ in range(JOBS_AT_ONCE + 1):
        await leave(services, await ended_job(services), node, "file", path="rank0/a", folder="rank0")
    await sweep(services, START + 8 * DAY)
    assert await kinds(services) == ["file"] * (JOBS_AT_ONCE + 1) + ["media"] * (2 * aging.BATCH + 1)
    await sweep(services, START + 91 * DAY)
    assert await kinds(services) == []


async def count_data(services: Services, job_ids: Sequence[str], kinds: Sequence[str], at: datetime) -> None:
    """Counts as of stored data, of which there is none."""
    async with services.metrics.write() as session:
        await storage.add(session, {(job_id, kind): (1, 100) for job_id in job_ids for kind in kinds}, at)


async def paused_jobs(services: Services, number: int) -> list[str]:
    async with services.write() as session:
        return [(await factories.create_job(session, state=JobState.PAUSED)).id for _ in range(number)]


async def test_old_curves_of_ended_jobs_go_however_many_paused_jobs_have_older_ones(services: Services) -> None:
    """From some 34 paused jobs on, no curve of any job was deleted any more."""
    paused, ended = await paused_jobs(services, aging.CANDIDATES // len(CURVES) + 1), await ended_job(services)
    await count_data(services, paused, CURVES, START)
    await count_data(services, [ended.id], CURVES, START + DAY)
    policy = replace(services.settings.keep, curves=30 * DAY)
    await aging.by_age(RetentionSweep(services, START + 60 * DAY, DeletionPace.of(PATIENCE)), policy)
    async with services.metrics.read() as session:
        assert await storage.with_data(session, [*paused, ended.id]) == set(paused)


async def test_above_the_size_points_of_ended_jobs_go_before_those_of_many_paused_ones(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aging, "CANDIDATES", 2)
    paused, ended = await paused_jobs(services, 5), await ended_job(services)
    await count_data(services, paused, ["points"], START)
    await count_data(services, [ended.id], ["points"], START + DAY)
    done = RetentionSweep(services, START + 2 * DAY, DeletionPace.of(PATIENCE))
    await aging.by_size(done, replace(services.settings.keep, bytes=500))
    assert next(iter(done.losses)) == (ended.id, "points")


async def test_gradients_that_go_are_told_of_once_and_notes_and_refusals_not_at_all(services: Services, node: NodeRow) -> None:
    """Each told of a trace that had never been, and there may be thousands."""
    job = await ended_job(services)
    await leave(services, job, node, "gradients", count=3)
    await leave(services, job, node, "snapshot")
    await leave(services, job, node, "limit", error="a is not kept: too many files", bytes=0, stored_at=None)
    refused: dict[str, Any] = {"error": "more than 1 GiB", "bytes": 0, "stored_at": None, "rank": 1}
    for kind in ("gradients", "trace"):
        await leave(services, job, node, kind, **refused)
    await leave(services, job, node, "trace")
    await sweep(services, START + 91 * DAY)
    assert await kinds(services) == []
    async with services.control.read() as session:
        told = [(row.type, row.message) for row in await session.scalars(select(EventRow).order_by(EventRow.seq))]
    assert told == [
        ("job.trace_removed", "the trace of steps 0 to 0 of rank 0 was removed: older than 90 days"),
        ("job.gradients_removed", "4 records of gradients (40 bytes) were removed: older than 90 days"),
    ]
