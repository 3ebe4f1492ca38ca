"""One turn of an experiment: what it goes by when it decides."""

from __future__ import annotations

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.cluster.states import JobState
from tests.api.test_experiments import jobs, post, read, set_jobs, step


async def test_what_the_trials_of_a_former_grid_have_used_counts_for_the_budget(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, at_once=1, budget={"slot_hours": 1})
    await step(services)
    await set_jobs(services, "lr-0", state=JobState.COMPLETED, ended_at=services.now(), ran_seconds=3500.0)
    found = await post(client, at_once=1, budget={"slot_hours": 0.9}, grid={"optimizer.lr": [0.5]})
    assert found["slot_hours"] == pytest.approx(3500 / 3600)
    await step(services)
    assert ((await read(client, experiment))["state"], len(await jobs(client))) == ("stopped", 1)
