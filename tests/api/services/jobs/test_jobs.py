"""Progress of a job that has ended while the metrics of its last steps are still on their way to the coordinator; which jobs have ended."""

from __future__ import annotations

from datetime import timedelta

import httpx
import msgspec
import pytest

from paceline.api.core.context import Services
from paceline.cluster.protocol import ENDED_JOBS_PATH, EndedJobs
from paceline.cluster.states import JobState
from tests import factories
from tests.api.test_jobs import JOBS, SCRIPT
from tests.conftest import Connect

TOLD = {"step": 18, "total_steps": 20, "loss": 0.5, "eta_seconds": 1.5}


@pytest.mark.parametrize(
    ("spec", "state", "step", "eta"),
    [
        ({}, JobState.COMPLETED, 20, 0.0),
        ({}, JobState.FAILED, 18, 1.5),
        ({}, JobState.RUNNING, 18, 1.5),
        (SCRIPT, JobState.COMPLETED, 18, 1.5),
    ],
)
async def test_a_completed_job_has_done_all_its_steps(
    client: httpx.AsyncClient, services: Services, spec: dict[str, object], state: JobState, step: int, eta: float
) -> None:
    async with services.write() as session:
        job = await factories.create_job(session, spec=factories.job_spec(**spec), state=state, progress=TOLD)
    for document in ((await client.get(f"{JOBS}/{job.id}")).json(), (await client.get(JOBS)).json()["items"][0]):
        assert (document["progress"]["step"], document["progress"]["eta_seconds"]) == (step, eta)


async def test_a_job_that_ended_before_its_ranks_announced_their_steps_has_done_those_of_its_spec(
    client: httpx.AsyncClient, services: Services
) -> None:
    spec = factories.job_spec(training={"steps": 20, "global_batch_size": 8})
    async with services.write() as session:
        job = await factories.create_job(session, spec=spec, state=JobState.COMPLETED, progress={"step": 18, "loss": 0.5})
    progress = (await client.get(f"{JOBS}/{job.id}")).json()["progress"]
    assert (progress["step"], progress["total_steps"], progress["eta_seconds"]) == (20, 20, 0.0)


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
