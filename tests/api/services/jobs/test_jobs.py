"""Nodes ask which jobs have ended."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from paceline.api.core.context import Services
from paceline.cluster.protocol import ENDED_JOBS_PATH, EndedJobs
from paceline.cluster.states import JobState
from tests import factories
from tests.conftest import Connect


async def test_nodes_are_told_which_jobs_ended_days_ago(services: Services, connect: Connect) -> None:
    now = services.now()
    async with services.write() as session:
        _, key = await factories.create_node(session)
        paused = await factories.create_job(session, state=JobState.PAUSED)
        just = await factories.create_job(session, state=JobState.COMPLETED, ended_at=now - timedelta(hours=1))
        long_ago = await factories.create_job(session, state=JobState.CANCELLED, ended_at=now - timedelta(days=5))
    asked = {"job_ids": [paused.id, just.id, long_ago.id, "deleted"], "seconds_ago": timedelta(days=4).total_seconds()}
    async with connect(key) as agent:
        answer = await agent.post(ENDED_JOBS_PATH, json=asked)
        refused = [await agent.post(ENDED_JOBS_PATH, json=asked | {"job_ids": [name]}) for name in ("with\0nul", "newline\n")]
    assert msgspec.json.decode(answer.content, type=EndedJobs).job_ids == (long_ago.id, "deleted")
    assert [each.status_code for each in refused] == [422, 422]
