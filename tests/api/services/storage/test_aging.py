"""What is old goes in one pass: files when their job has been over for long, curves of ended jobs; with one word about many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.services.storage import aging
from paceline.api.services.storage.files import JOBS_AT_ONCE
from paceline.api.services.storage.keeping import DeletionPace, Sweep
from paceline.cluster.history.storage import CURVES
from paceline.cluster.states import JobState
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow
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


async def kinds(services: Services) -> list[str]:
    async with services.control.read() as session:
        return sorted(await session.scalars(select(ArtifactRow.kind)))


async def sweep(services: Services, now: datetime) -> None:
    """One pass over the files, with the settings as they come."""
    await aging.old_artifacts(Sweep(services, now, DeletionPace.of(PATIENCE)), services.settings.keep)


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
    await aging.by_age(Sweep(services, START + 60 * DAY, DeletionPace.of(PATIENCE)), policy)
    async with services.metrics.read() as session:
        assert await storage.with_data(session, [*paused, ended.id]) == set(paused)


async def test_above_the_size_points_of_ended_jobs_go_before_those_of_many_paused_ones(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aging, "CANDIDATES", 2)
    paused, ended = await paused_jobs(services, 5), await ended_job(services)
    await count_data(services, paused, ["points"], START)
    await count_data(services, [ended.id], ["points"], START + DAY)
    done = Sweep(services, START + 2 * DAY, DeletionPace.of(PATIENCE))
    await aging.by_size(done, replace(services.settings.keep, bytes=500))
    assert next(iter(done.losses)) == (ended.id, "points")


async def test_gradients_that_go_are_told_of_once_and_notes_and_refusals_not_at_all(services: Services, node: NodeRow) -> None:
    """Each told of a trace that had never been, and there may be thousands."""
    job = await ended_job(services)
    await leave(services, job, node, "gradients", count=3)
    await leave(services, job, node, "snapshot")
    await leave(services, job, node, "limit", error="a is not kept: too many files", bytes=0, stored_at=None)
    refused = {"error": "more than 1 GiB", "bytes": 0, "stored_at": None, "rank": 1}
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
