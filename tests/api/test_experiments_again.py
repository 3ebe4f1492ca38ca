"""Experiments that are posted again, on both databases: what stays, what runs anew, what a search draws."""

from __future__ import annotations

import httpx

from paceline.api.core.context import Services
from paceline.cluster.states import JobState
from tests.api.test_experiments import EXPERIMENTS, end, jobs, post, read, set_jobs, states, step


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
