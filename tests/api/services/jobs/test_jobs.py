"""Progress of a job that has ended while the metrics of its last steps are still on their way to the coordinator."""

from __future__ import annotations

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.cluster.states import JobState
from tests import factories
from tests.api.test_jobs import JOBS, SCRIPT

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
