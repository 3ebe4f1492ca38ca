"""Experiments that are posted again, on both databases: what stays, what runs anew, what a search draws."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import update

from paceline.api.core.context import Services
from paceline.cluster.experiments.draws import SAME_JOB
from paceline.cluster.states import JobState
from paceline.db.models.experiments import ExperimentRow
from tests.api.test_experiments import EXPERIMENTS, JOB, Found, code, document, end, jobs, post, read, set_jobs, states, step, trials

RATE = "optimizer.lr"


async def test_what_is_being_cancelled_while_it_is_posted_again_runs_anew(client: httpx.AsyncClient, services: Services) -> None:
    """Its job had not ended yet, so the trial stayed, and ended as cancelled."""
    experiment = await post(client)
    await step(services)
    await set_jobs(services, "lr-0", state=JobState.RUNNING)
    await client.delete(f"{EXPERIMENTS}/{experiment['id']}")
    await step(services)
    again = await post(client)
    assert (again["state"], again["trials"]["waiting"]) == ("running", 2)
    await end(services, "lr-0", state=JobState.CANCELLED)
    await step(services)
    assert [(job["name"], job["state"]) for job in await jobs(client)] == [("lr-0", "cancelled"), ("lr-0", "queued")]


async def test_what_comes_back_while_it_is_being_cancelled_runs_anew(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client)
    await step(services)
    await set_jobs(services, "lr-0", state=JobState.RUNNING)
    await post(client, grid={"optimizer.lr": [0.01]})
    await post(client)
    assert await states(client, experiment) == ["waiting", "waiting"]
    assert (await read(client, experiment))["trials"]["total"] == 2


# --- a search


def search(*rates: float, job: Found = JOB, **changes: Any) -> Found:
    """A search that draws from these learning rates, one trial at a time."""
    return {"grid": {}, "job": job, "at_once": 1, "search": {"trials": 3, "parameters": {RATE: list(rates)}}} | changes


async def run_trials(client: httpx.AsyncClient, services: Services, experiment: Found, state: JobState = JobState.COMPLETED) -> None:
    """Have each trial end in this state until nothing more is drawn."""
    for _ in range(6):
        await step(services)
        await step(services)
        queued = [each["job"]["name"] for each in await trials(client, experiment) if each["job"] and each["job"]["state"] == "queued"]
        if not queued:
            return
        await end(services, *queued, state=state)


async def results(client: httpx.AsyncClient, experiment: Found) -> list[tuple[float, str, bool]]:
    return sorted((each["values"][RATE], each["state"], each["reused"]) for each in await trials(client, experiment))


@pytest.mark.parametrize("change", [{"priority": 90}, {"optimizer": {"kind": "adamw", "weight_decay": 0.1}}, {"description": "at night"}])
async def test_a_search_keeps_its_results_where_the_job_says_the_same(client: httpx.AsyncClient, services: Services, change: Found) -> None:
    """They went, and the same values were refused as those of another trial. adamw has this weight decay anyway."""
    experiment = await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment)
    before = [each["job"]["id"] for each in await trials(client, experiment)]
    again = await post(client, **search(0.1, 0.01, job=JOB | change))
    assert again["trials"]["completed"] == 2
    await run_trials(client, services, experiment)
    assert await results(client, experiment) == [(0.01, "completed", True), (0.1, "completed", True)]
    assert [each["job"]["id"] for each in await trials(client, experiment)] == before


async def test_a_search_with_another_value_keeps_its_results_and_draws_the_new_one(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment)
    await post(client, **search(0.1, 0.01, 0.001))
    await run_trials(client, services, experiment)
    assert await results(client, experiment) == [(0.001, "completed", False), (0.01, "completed", True), (0.1, "completed", True)]


async def test_a_value_that_a_search_draws_again_after_it_was_left_out_has_its_result(
    client: httpx.AsyncClient, services: Services
) -> None:
    experiment = await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment)
    await post(client, **search(0.1, 0.5))
    await run_trials(client, services, experiment)
    assert await results(client, experiment) == [(0.1, "completed", True), (0.5, "completed", False)]
    await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment)
    assert await results(client, experiment) == [(0.01, "completed", True), (0.1, "completed", True)]
    assert len(await jobs(client)) == 3, "nothing ran twice"


async def test_a_search_for_another_job_draws_anew_and_one_for_the_job_of_before_has_its_results(
    client: httpx.AsyncClient, services: Services
) -> None:
    experiment = await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment)
    longer = JOB | {"training": JOB["training"] | {"steps": 20}}
    for job, is_reused, ran in ((longer, False, 4), (JOB, True, 4)):
        await post(client, **search(0.1, 0.01, job=job))
        await run_trials(client, services, experiment)
        assert await results(client, experiment) == [(0.01, "completed", is_reused), (0.1, "completed", is_reused)]
        assert len(await jobs(client)) == ran


async def test_a_search_over_the_values_of_a_grid_has_its_results(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client)
    await run_trials(client, services, experiment)
    await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment)
    assert await results(client, experiment) == [(0.01, "completed", True), (0.1, "completed", True)]
    assert (await read(client, experiment))["state"] == "completed"


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
async def test_what_failed_or_was_cancelled_of_a_search_runs_anew(client: httpx.AsyncClient, services: Services, state: JobState) -> None:
    experiment = await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment, state)
    assert [found for _, found, _ in await results(client, experiment)] == [state.value, state.value]
    await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment)
    assert await results(client, experiment) == [(0.01, "completed", False), (0.1, "completed", False)]


async def test_a_search_with_more_repeats_adds_them_to_what_was_drawn(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, **search(0.1, 0.01))
    await run_trials(client, services, experiment)
    await post(client, **search(0.1, 0.01, repeats=2))
    await run_trials(client, services, experiment)
    assert sorted((each["values"][RATE], each["repeat"], each["reused"]) for each in await trials(client, experiment)) == [
        (0.01, 0, True),
        (0.01, 1, False),
        (0.1, 0, True),
        (0.1, 1, False),
    ]


async def test_values_that_make_no_difference_are_refused_once_however_often_it_is_posted(
    client: httpx.AsyncClient, services: Services
) -> None:
    twins = {"trials": 3, "parameters": {"environment": [{}, {"variables": {}}], RATE: [0.1]}}
    for _ in range(2):
        experiment = await post(client, **search(search=twins))
        await run_trials(client, services, experiment)
        assert sorted(str(each["refusal"]) for each in await trials(client, experiment)) == ["None", SAME_JOB]
    assert len(await jobs(client)) == 1


# --- one that is to be new


async def test_what_is_to_be_new_leaves_the_experiment_of_its_name_alone(client: httpx.AsyncClient, services: Services) -> None:
    """A template has a fixed name: who began with it anew cancelled the trials of whoever had begun with it before."""
    experiment = await post(client)
    await step(services)
    await set_jobs(services, "lr-0", state=JobState.RUNNING)
    other = document(grid={RATE: [0.01, 0.001]})
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=other)).json()
    assert plan["replaces"] == {"id": experiment["id"], "created_by": experiment["created_by"], "cancels": 1}
    refused = await client.post(EXPERIMENTS, json=other, headers={"If-None-Match": "*", "Idempotency-Key": "k"})
    assert code(refused) == (409, "already_exists")
    assert "'lr' of admin in project 'default'" in refused.json()["detail"]
    found = await read(client, experiment)
    assert (found["revision"], found["spec"]["grid"], found["trials"]["waiting"]) == (experiment["revision"], {RATE: [0.1, 0.01]}, 1)
    assert [job["desired"] for job in await jobs(client)] == ["run"]
    again = await client.post(EXPERIMENTS, json=other, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, experiment["id"]), "the refusal has not used up the key"
    assert [job["desired"] for job in await jobs(client)] == ["cancel"]


async def test_what_is_new_is_made_once_however_often_it_is_sent(client: httpx.AsyncClient) -> None:
    headers = {"If-None-Match": "*", "Idempotency-Key": "k"}
    answers = [await client.post(EXPERIMENTS, json=document(), headers=headers) for _ in range(2)]
    assert [(answer.status_code, answer.json()["revision"]) for answer in answers] == [(201, 1), (201, 1)]
    assert (await client.post(f"{EXPERIMENTS}/plan", json=document(name="other"))).json()["replaces"] is None


async def test_a_stored_spec_that_this_version_cannot_read_is_a_problem_that_says_so(client: httpx.AsyncClient, services: Services) -> None:
    """Posting it again was an internal error, and so was its analysis."""
    experiment = await post(client)
    async with services.write() as session:
        await session.execute(update(ExperimentRow).values(spec={**experiment["spec"], "metric": {"name": "loss", "goal": "sideways"}}))
    answer = await client.post(EXPERIMENTS, json=document())
    assert (answer.status_code, answer.json()["code"]) == (409, "unreadable_experiment"), answer.text
    assert "metric/goal" in answer.json()["detail"]
    assert (await client.get(f"{EXPERIMENTS}/{experiment['id']}")).json()["spec"]["metric"]["goal"] == "sideways"
    other = await post(client, name="another")
    assert other["revision"] == 1
