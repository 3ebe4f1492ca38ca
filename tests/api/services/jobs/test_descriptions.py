"""Jobs as clients see them: the answer to a submission, and the progress of a job whose last metrics are still on their way."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.cluster.states import JobState
from paceline.db.base import new_id
from paceline.training.spec.consistency import inconsistencies
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.api.test_jobs import JOBS, SCRIPT
from tests.api.test_plan_auto import auto, two_nodes

TOLD = {"step": 18, "total_steps": 20, "loss": 0.5, "eta_seconds": 1.5}


@pytest.mark.parametrize(
    "document", [auto(), factories.job_spec().model_dump(mode="json"), factories.job_spec(**SCRIPT).model_dump(mode="json")]
)
async def test_the_answer_to_a_submission_is_what_the_jobs_page_shows_next(
    client: httpx.AsyncClient, services: Services, document: dict[str, Any]
) -> None:
    """It is told from less: of a new job nothing is read but its row."""
    await two_nodes(services)
    submitted = (await client.post(JOBS, json=document)).json()
    shown = (await client.get(f"{JOBS}/{submitted['id']}")).json()
    assert (submitted["choice"] is not None) == (document["name"] == "auto")
    assert submitted | {"warnings": []} == shown


async def test_a_spec_is_checked_once_where_it_is_read_and_not_again_for_the_answer(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = factories.job_spec(name=f"once-{new_id().lower()}").model_dump(mode="json")  # no other test has had this text read
    checked: list[str] = []

    def check(spec: JobSpec) -> list[str]:
        checked.append(spec.name)
        return inconsistencies(spec)

    monkeypatch.setattr("paceline.training.spec.job.inconsistencies", check)
    submitted = (await client.post(JOBS, json=document)).json()
    assert len(checked) == 1, "the body was read"
    await client.get(f"{JOBS}/{submitted['id']}")
    assert len(checked) == 2, "the row was read"


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
