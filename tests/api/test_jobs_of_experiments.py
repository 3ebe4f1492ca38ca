"""The jobs of an experiment among all jobs, on both databases."""

from __future__ import annotations

import httpx

from paceline.api.core.context import Services
from tests import factories
from tests.api.test_experiments import JOBS, end, post, step


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
    assert (await client.get(JOBS, params={"experiment": "nowhere"})).json()["items"] == []
    shown = (await client.get(f"{JOBS}/{listed[1]['id']}")).json()
    assert shown["experiment"] == {"id": one["id"], "name": "lr", "trial": 1}
    assert (await client.get(f"{JOBS}/{alone.id}")).json()["experiment"] is None
    assert len((await client.get(JOBS, params={"experiment": other["id"]})).json()["items"]) == 1
