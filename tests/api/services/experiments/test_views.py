"""Numbers of an experiment that depend on what its trials hold now."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.cluster.states import Intent, JobState
from paceline.db.models.jobs import GenerationRow, JobRow
from tests import factories
from tests.api.test_experiments import EXPERIMENTS, Found, document, end, post, read, set_jobs, step


async def hold(services: Services, name: str, seconds: float, *, ranks: int = 1, ran_seconds: float = 0.0, generation: int = 1) -> None:
    """Have the job of this name hold slots, for so many seconds by now."""
    async with services.write() as session:
        job = (await session.scalars(select(JobRow).where(JobRow.name == name))).one()
        job.state, job.generation, job.ran_seconds, job.world_size = JobState.RUNNING, generation, ran_seconds, ranks
        started = services.now() - timedelta(seconds=seconds)
        session.add(GenerationRow(job_id=job.id, generation=generation, world_size=ranks, started_at=started, store_token="t"))


# --- the time left


async def test_the_time_left_falls_while_a_trial_runs(client: httpx.AsyncClient, services: Services) -> None:
    """It was that of a whole trial until the last one had ended."""
    experiment = await post(client, at_once=1)
    await step(services)
    await end(services, "lr-0")
    await step(services)
    now = services.now()
    object.__setattr__(services, "now", lambda: now)  # else it falls by the time that the test takes
    await hold(services, "lr-1", 40)
    assert (await read(client, experiment))["seconds_left"] == pytest.approx(20)
    await hold(services, "lr-1", 30, ran_seconds=20, generation=2)
    assert (await read(client, experiment))["seconds_left"] == pytest.approx(10), "of both generations"


async def test_a_trial_that_takes_longer_than_others_takes_nothing_off_those_that_wait(
    client: httpx.AsyncClient, services: Services
) -> None:
    experiment = await post(client, at_once=1, grid={"optimizer.lr": [0.1, 0.01, 0.001]})
    await step(services)
    await end(services, "lr-0")
    await step(services)
    await hold(services, "lr-1", 500)
    assert (await read(client, experiment))["seconds_left"] == pytest.approx(60)


RATES = {"optimizer.lr": {"low": 1e-4, "high": 1, "scale": "log"}}


@pytest.mark.parametrize(("parameters", "draws"), [(RATES, 5), ({"optimizer.lr": [0.1, 0.01, 0.001]}, 3)])
async def test_the_time_left_of_a_search_has_the_trials_that_are_not_drawn_yet(
    client: httpx.AsyncClient, services: Services, parameters: dict[str, Any], draws: int
) -> None:
    search: Found = {"grid": {}, "at_once": 1, "search": {"trials": 5, "parameters": parameters}}
    async with services.write() as session:
        await factories.create_node(session, slots=2)
    experiment = await post(client, **search)
    for _ in range(2):
        await step(services)
    await end(services, "lr-0")
    for _ in range(2):
        await step(services)
    found = await read(client, experiment)
    assert found["seconds_left"] == pytest.approx((draws - 1) * 60)
    counts = found["trials"]
    assert (counts["total"], counts["completed"], counts["waiting"]) == (draws, 1, draws - 1), "it was 1 of 2"
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=document(**search))).json()
    assert (plan["seconds"], plan["slot_hours"]) == (pytest.approx((draws - 1) * 60), pytest.approx((draws - 1) / 60))


# --- slot-hours


async def end_generation(services: Services, name: str, state: JobState) -> None:
    """End the newest generation of the job of this name, and put the job into this state."""
    async with services.write() as session:
        job = (await session.scalars(select(JobRow).where(JobRow.name == name))).one()
        generation = await session.get_one(GenerationRow, (job.id, job.generation))
        generation.ended_at = services.now()
        job.state, job.ran_seconds = state, job.ran_seconds + (generation.ended_at - generation.started_at).total_seconds()


async def test_the_slot_hours_of_a_trial_that_has_grown_stay_when_its_generation_ends(
    client: httpx.AsyncClient, services: Services
) -> None:
    """They were counted again as if it had never grown, and the budget let it go on."""
    experiment = await post(client, at_once=1, budget={"slot_hours": 8})
    await step(services)
    await hold(services, "lr-0", 3600)
    await end_generation(services, "lr-0", JobState.QUEUED)
    await hold(services, "lr-0", 3600, ranks=8, ran_seconds=3600, generation=2)
    assert (await read(client, experiment))["slot_hours"] == pytest.approx(9, rel=0.01)
    await end_generation(services, "lr-0", JobState.FAILED)
    assert (await read(client, experiment))["slot_hours"] == pytest.approx(9, rel=0.01)
    await post(client, at_once=1, budget={"slot_hours": 8.5})
    await step(services)
    found = await read(client, experiment)
    assert (found["slot_hours"], found["state"]) == (pytest.approx(9, rel=0.01), "stopped"), "the failed try was paid for too"


# --- why nothing runs


async def test_a_trial_that_rests_at_a_rung_is_not_said_to_be_paused_by_hand(client: httpx.AsyncClient, services: Services) -> None:
    """Who resumed it, as was told, had it go on before it was compared."""
    experiment = await post(client, at_once=1, halving={"min_steps": 3})
    await step(services)
    for resting, code in ((3, None), (4, "paused_by_hand")):
        await set_jobs(services, "lr-0", state=JobState.PAUSED, desired=Intent.PAUSE, progress={"last_checkpoint_step": resting})
        waits_for = (await read(client, experiment))["waits_for"]
        assert (waits_for and waits_for["code"]) == code
