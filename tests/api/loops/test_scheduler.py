"""Slots are given once, even by a replica that decided on what it saw before a stall."""

from __future__ import annotations

import asyncio

import pytest

from paceline.api.core.context import Services
from paceline.api.loops import placing
from paceline.api.services.specs.job_views import node_views, request_of
from paceline.cluster.policy.placement import place
from paceline.cluster.states import JobState
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from tests import factories
from tests.factories import START


async def place_both_on_one_snapshot(services: Services, jobs: list[JobRow]) -> None:
    """As two replicas that each hold the lease for what they know, one job each."""
    async with services.control.read() as session:
        nodes = await node_rows.present(session)
        views = node_views(nodes, await job_rows.holders(session))
    by_id = {node.id: node for node in nodes}
    verdicts = [place([request_of(job)], views)[0] for job in jobs]
    await asyncio.gather(*(placing.start_placed(services, job, verdict, by_id, START) for job, verdict in zip(jobs, verdicts, strict=True)))


@pytest.mark.parametrize("slots", [1, 2])
async def test_two_jobs_never_get_the_same_slot(services: Services, slots: int) -> None:
    async with services.write() as session:
        await factories.create_node(session, slots=slots)
        jobs = [await factories.create_job(session), await factories.create_job(session)]
    await place_both_on_one_snapshot(services, jobs)
    async with services.control.read() as session:
        held = [(rank.node_id, rank.slot) for rank, _ in await job_rows.holders(session)]
        states = [row.state for job in jobs if (row := await job_rows.get(session, job.id)) is not None]
    assert len(held) == len(set(held)) == 1
    assert sorted(states) == sorted([JobState.STARTING, JobState.QUEUED])
