"""After a restore: no generation number is used a second time, and nothing is desired that was handed out before."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.services.scheduling.assignments import desired_of
from paceline.cluster.states import EndReason, JobState, RankState
from paceline.db import backup
from paceline.db.fencing import SKIPPED_GENERATIONS, fence_generations
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from tests import factories
from tests.factories import HOUR, START

LATER = START + HOUR


async def add_gang(session: AsyncSession, node: NodeRow, state: JobState, rank_state: RankState) -> str:
    job = await factories.create_job(session, state=state, generation=2, world_size=1, end_reason=EndReason.RESIZED)
    for number in (1, 2):
        session.add(GenerationRow(job_id=job.id, generation=number, world_size=1, started_at=START, store_token="token"))
        await session.flush()
        place = {"node_id": node.id, "slot": 0, "local_rank": 0, "node_rank": 0, "updated_at": START}
        session.add(RankRow(job_id=job.id, generation=number, rank=0, state=rank_state if number == 2 else RankState.MOVED, **place))
    await session.flush()
    return job.id


async def fence(services: Services) -> int:
    async with services.write() as session:
        return await (await session.connection()).run_sync(fence_generations, LATER)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (JobState.STARTING, JobState.RECOVERING),
        (JobState.RUNNING, JobState.RECOVERING),
        (JobState.RESIZING, JobState.RECOVERING),
        (JobState.RECOVERING, JobState.RECOVERING),
        (JobState.STOPPING, JobState.STOPPING),
        (JobState.PAUSED, JobState.PAUSED),
    ],
)
async def test_a_job_goes_on_under_a_number_that_was_never_used(services: Services, before: JobState, after: JobState) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job_id = await add_gang(session, node, before, RankState.RUNNING)
    assert await fence(services) == 1
    async with services.control.read() as session:
        job = await session.get_one(JobRow, job_id)
        assert (job.state, job.generation) == (after, 2 + SKIPPED_GENERATIONS)
        assert (job.end_reason is None) == (before is not after)
        newest = await session.get_one(GenerationRow, (job_id, job.generation))
        assert (newest.started_at, newest.ended_at, newest.world_size) == (LATER, LATER, 1)
        ranks = [await session.get_one(RankRow, (job_id, number, 0)) for number in (1, 2)]
        assert [(rank.state, rank.drained) for rank in ranks] == [(RankState.MOVED, True), (RankState.EXITED, True)]
        assert not (await desired_of(session, [await session.get_one(NodeRow, node.id)]))[node.id].assignments


async def test_a_queued_job_does_not_begin_with_a_number_that_it_had_after_the_backup(services: Services) -> None:
    async with services.write() as session:
        job = await factories.create_job(session)
    assert [await fence(services), await fence(services)] == [1, 1]
    async with services.control.read() as session:
        row = await session.get_one(JobRow, job.id)
        assert (row.state, row.generation, row.version) == (JobState.QUEUED, 2 * SKIPPED_GENERATIONS, job.version + 2)


async def test_ended_jobs_stay_as_they_are(services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job_id = await add_gang(session, node, JobState.COMPLETED, RankState.EXITED)
    assert await fence(services) == 0
    async with services.control.read() as session:
        assert (await session.get_one(JobRow, job_id)).generation == 2
        assert (await session.get_one(RankRow, (job_id, 2, 0))).drained is False


async def test_the_time_that_a_job_has_had_still_counts(services: Services) -> None:
    """Its `time_limit` and the budget of its experiment began anew."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job_id = await add_gang(session, node, JobState.RUNNING, RankState.RUNNING)
        (await session.get_one(JobRow, job_id)).ran_seconds = 100.0
    for _ in range(2):
        await fence(services)
        async with services.control.read() as session:
            assert (await session.get_one(JobRow, job_id)).ran_seconds == 100.0 + HOUR.total_seconds()


def add_running_job(data: Path) -> None:
    columns = "id, name, project, priority, labels, state, desired, spec, world_size, generation, restarts, version, created_by, created_at, queued_at, state_since"
    with sqlite3.connect(data / "paceline.db") as connection:
        values = "'job', 'job', 'p', 0, '{}', 'running', 'run', '{}', 1, 1, 0, 1, 'ada', '2026-01-01', '2026-01-01', '2026-01-01'"
        connection.execute(f"INSERT INTO jobs ({columns}) VALUES ({values})")
    connection.close()


def test_a_restored_backup_is_fenced_before_a_coordinator_sees_it(sqlite_template: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(sqlite_template, data)
    add_running_job(data)
    backup.back_up(data, tmp_path / "kept")
    backup.restore(tmp_path / "kept", data, force=True)
    connection = sqlite3.connect(data / "paceline.db")
    assert connection.execute("SELECT state, generation FROM jobs").fetchall() == [("recovering", 1 + SKIPPED_GENERATIONS)]
    connection.close()
    assert not any(each.problems for each in backup.check(data))


def test_a_backup_from_before_the_time_of_jobs_was_counted_is_fenced_too(sqlite_template: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(sqlite_template, data)
    add_running_job(data)
    with sqlite3.connect(data / "paceline.db") as connection:
        connection.execute("ALTER TABLE jobs DROP COLUMN ran_seconds")
    connection.close()
    backup.fence(data / "paceline.db")
    connection = sqlite3.connect(data / "paceline.db")
    assert connection.execute("SELECT state, generation FROM jobs").fetchall() == [("recovering", 1 + SKIPPED_GENERATIONS)]
    connection.close()
