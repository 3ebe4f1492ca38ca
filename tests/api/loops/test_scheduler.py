"""Slots are given once, even by a replica that decided on what it saw before a stall; and many jobs move in few transactions."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import cast

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.loops import placing, scheduler
from paceline.api.loops.lease_loop import LeaseLoop
from paceline.api.services.jobs import notices
from paceline.api.services.specs.job_views import node_views, request_of
from paceline.cluster.policy.placement import Placement, place
from paceline.cluster.states import Intent, JobState
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows
from tests import factories
from tests.factories import HOUR, START


async def place_both_on_one_snapshot(services: Services, jobs: list[JobRow]) -> None:
    """As two replicas that each hold the lease for what they know, one job each."""
    async with services.control.read() as session:
        nodes = await node_rows.present(session)
        views = node_views(nodes, await slot_rows.holders(session))
    by_id = {node.id: node for node in nodes}
    verdicts = [cast(Placement, place([request_of(job)], views)[0]) for job in jobs]
    await asyncio.gather(
        *(placing.start_placed(services, [(job, verdict)], by_id, START) for job, verdict in zip(jobs, verdicts, strict=True))
    )


@pytest.mark.parametrize("slots", [1, 2])
async def test_two_jobs_never_get_the_same_slot(services: Services, slots: int) -> None:
    async with services.write() as session:
        await factories.create_node(session, slots=slots)
        jobs = [await factories.create_job(session), await factories.create_job(session)]
    await place_both_on_one_snapshot(services, jobs)
    async with services.control.read() as session:
        held = [(each.node_id, each.slot) for each in await slot_rows.holders(session)]
        states = [row.state for job in jobs if (row := await job_rows.get(session, job.id)) is not None]
    assert len(held) == len(set(held)) == 1
    assert sorted(states) == sorted([JobState.STARTING, JobState.QUEUED])


async def queue(services: Services, jobs: int, slots: int) -> None:
    async with services.write() as session:
        await factories.create_node(session, slots=slots)
        for _ in range(jobs):
            await factories.create_job(session)


async def states(services: Services) -> Counter[JobState]:
    async with services.control.read() as session:
        return Counter(await session.scalars(select(JobRow.state)))


@pytest.fixture
def commits(services: Services, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each writing transaction."""
    found: list[int] = []
    write = Services.write

    def counted(self: Services, **options: bool) -> AbstractAsyncContextManager[AsyncSession]:
        found.append(1)
        return write(self, **options)

    monkeypatch.setattr(Services, "write", counted)
    return found


async def test_many_jobs_start_and_end_in_one_transaction_each(services: Services, commits: list[int]) -> None:
    await queue(services, jobs=20, slots=20)
    commits.clear()
    await scheduler.step_once(services, START)
    assert (await states(services), len(commits)) == (Counter({JobState.STARTING: 20}), 1)
    async with services.write() as session:
        await session.execute(update(JobRow).values(desired=Intent.CANCEL))
    commits.clear()
    await scheduler.step_once(services, START)
    assert (await states(services), len(commits)) == (Counter({JobState.STOPPING: 20}), 1)


async def test_a_step_starts_so_many_jobs_at_most_and_the_next_comes_at_once(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "MOST_STARTS", 3)
    await queue(services, jobs=5, slots=8)
    with services.bus.subscribe(bus.SCHEDULER) as nudges:
        await scheduler.step_once(services, START)
        assert await states(services) == Counter({JobState.STARTING: 3, JobState.QUEUED: 2})
        assert await nudges.wait(0)
        await scheduler.step_once(services, START)
        assert await states(services) == Counter({JobState.STARTING: 5})
        assert not await nudges.wait(0)


async def test_a_step_moves_so_many_jobs_at_most_and_the_next_comes_at_once(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "MOST_MOVES", 3)
    await queue(services, jobs=5, slots=0)
    async with services.write() as session:
        await session.execute(update(JobRow).values(desired=Intent.CANCEL))
    with services.bus.subscribe(bus.SCHEDULER) as nudges:
        await scheduler.step_once(services, START)
        assert await states(services) == Counter({JobState.CANCELLED: 3, JobState.QUEUED: 2})
        assert await nudges.wait(0)
        await scheduler.step_once(services, START)
        assert await states(services) == Counter({JobState.CANCELLED: 5})
        assert not await nudges.wait(0)


@pytest.mark.parametrize("step", [3 * HOUR, -3 * HOUR], ids=["forward", "back"])
async def test_a_time_limit_counts_no_step_of_the_clock(services: Services, step: timedelta) -> None:
    """Set forward by three hours, a job with two hours ended at minute five; set back, it ran five hours."""
    passed = 0.0
    services.uptime.monotonic = lambda: passed
    loop = LeaseLoop("scheduler", services, scheduler.Scheduler(services).step_once, 1.0, waits_for_agents=True)
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, spec=factories.job_spec(time_limit="2h"))

    async def state_after(minutes: float, ahead: timedelta) -> JobState:
        nonlocal passed
        passed = minutes * 60
        await loop.step_once(START + timedelta(minutes=minutes) + ahead)
        return (await states(services)).popitem()[0]

    assert await state_after(4, timedelta()) is JobState.RUNNING
    assert await state_after(5, step) is JobState.RUNNING
    assert await state_after(119, step) is JobState.RUNNING
    async with services.control.read() as session:
        told = (await notices.of_jobs(session, [await session.get_one(JobRow, job.id)], START + step + 2 * HOUR))[job.id]
    assert told.ran_seconds == pytest.approx(7200.0, abs=5.0)
    assert await state_after(121, step) is JobState.STOPPING
