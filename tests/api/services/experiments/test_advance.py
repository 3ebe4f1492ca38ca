"""One turn of an experiment: what it goes by when it decides."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.loops.due_looks import DueLooks
from paceline.api.loops.experiments import ExperimentKeeper
from paceline.api.loops.lease_loop import LeaseLoop
from paceline.api.loops.scheduler import Scheduler
from paceline.cluster.states import JobState
from tests.api.test_experiments import EXPERIMENTS, JOBS, jobs, post, read, set_jobs, step
from tests.factories import HOUR


async def test_what_the_trials_of_a_former_grid_have_used_counts_for_the_budget(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, at_once=1, budget={"slot_hours": 1})
    await step(services)
    await set_jobs(services, "lr-0", state=JobState.COMPLETED, ended_at=services.now(), ran_seconds=3500.0)
    found = await post(client, at_once=1, budget={"slot_hours": 0.9}, grid={"optimizer.lr": [0.5]})
    assert found["slot_hours"] == pytest.approx(3500 / 3600)
    await step(services)
    assert ((await read(client, experiment))["state"], len(await jobs(client))) == ("stopped", 1)


async def test_a_trial_that_was_resumed_by_hand_and_is_paused_by_hand_later_is_left_alone(
    client: httpx.AsyncClient, services: Services
) -> None:
    """It was taken for paused with the experiment, and queued again within a second."""
    experiment = await post(client, at_once=1)
    await step(services)
    await client.put(f"{EXPERIMENTS}/{experiment['id']}/pause")
    await step(services)
    await set_jobs(services, "lr-0", state=JobState.PAUSED)
    await step(services)
    (job,) = await jobs(client)
    assert (await client.put(f"{JOBS}/{job['id']}/resume")).status_code == 200
    await client.put(f"{EXPERIMENTS}/{experiment['id']}/resume")
    await step(services)
    await client.put(f"{JOBS}/{job['id']}/pause")
    await set_jobs(services, "lr-0", state=JobState.PAUSED)
    await step(services)
    assert [each["desired"] for each in await jobs(client) if each["name"] == "lr-0"] == ["pause"]


@pytest.mark.parametrize("jump", [3 * HOUR, -3 * HOUR], ids=["forward", "back"])
async def test_a_step_of_the_clock_uses_up_no_wall_time(client: httpx.AsyncClient, services: Services, jump: timedelta) -> None:
    """Set forward by hours, or after a night in which the machine was suspended, the experiment was stopped and its trials were paused."""
    experiment, passed, begin = await post(client, budget={"wall_time": "2h"}), 0.0, services.now()
    services.uptime.monotonic = lambda: passed
    keeping = LeaseLoop("experiments", services, ExperimentKeeper(services, DueLooks(services)).step_once, 1.0)
    scheduling = LeaseLoop("scheduler", services, Scheduler(services).step_once, 1.0, waits_for_agents=True)

    async def state_after(minutes: float, ahead: timedelta = timedelta()) -> str:
        nonlocal passed
        passed = minutes * 60
        for loop in (keeping, scheduling, keeping):
            await loop.step_once(begin + timedelta(minutes=minutes) + ahead)
        state: str = (await read(client, experiment))["state"]
        return state

    assert await state_after(1) == "running"
    assert await state_after(5, jump) == "running"
    assert await state_after(118, jump) == "running"
    assert await state_after(121, jump) == "stopped"
