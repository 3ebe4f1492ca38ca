"""The jobs of an experiment among all jobs, on both databases."""

from __future__ import annotations

import httpx

from paceline.api.core.context import Services
from tests import factories
from tests.api.test_experiments import EXPERIMENTS, JOBS, end, post, step


async def test_a_job_names_its_experiment_and_the_list_has_those_of_one(client: httpx.AsyncClient, services: Services) -> None:
    one, other = await post(client), await post(client, name="other")
    async with services.write() as session:
        alone = await factories.create_job(session, name="alone")
    await step(services)
    await end(services, "lr-0")
    await step(services)
    listed = (await client.get(JOBS, params={"experiment": one["id"], "sort": "name"})).json()["items"]
    assert [job["name"] for job in listed] == ["lr-0", "lr-1"]
    assert (await client.get(JOBS, params={"experiment": one["id"], "q": "lr-1"})).json()["items"] == listed[1:]
    assert (await client.get(JOBS, params={"experiment": "lr", "sort": "name"})).json()["items"] == listed, "by its name as well"
    assert (await client.get(JOBS, params={"experiment": "nowhere"})).json()["items"] == []
    assert (await client.get(JOBS, params={"experiment": "lr", "sort": "name"})).json()["items"] == listed
    trials = {each: (await client.get(JOBS, params={"trials": each})).json()["items"] for each in ("only", "exclude", "include")}
    assert {each: len(items) for each, items in trials.items()} == {"only": 3, "exclude": 1, "include": 4}
    assert trials["exclude"][0]["id"] == alone.id
    shown = (await client.get(f"{JOBS}/{listed[1]['id']}")).json()
    assert shown["experiment"] == {"id": one["id"], "name": "lr", "trial": 1}
    assert (await client.get(f"{JOBS}/{alone.id}")).json()["experiment"] is None
    assert len((await client.get(JOBS, params={"experiment": other["id"]})).json()["items"]) == 1


async def test_the_beginning_of_an_id_finds_jobs_and_experiments_if_it_is_long_enough(
    client: httpx.AsyncClient, services: Services
) -> None:
    """Only a whole id did."""
    experiment = await post(client)
    async with services.write() as session:
        job = await factories.create_job(session, name="alone")
    for path, id in ((JOBS, job.id), (EXPERIMENTS, experiment["id"])):
        assert id in [each["id"] for each in (await client.get(path, params={"q": id[:20].lower()})).json()["items"]]
        assert (await client.get(path, params={"q": id[:5]})).json()["items"] == []
