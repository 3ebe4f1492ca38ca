"""Experiments that have ended are analyzed by themselves, once, on both databases."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from paceline.api.core.context import Services
from paceline.api.loops.analyses import Analyst
from paceline.api.loops.due_looks import ANALYSIS_DELAY, DueLooks
from paceline.api.services.experiments import analysis
from paceline.api.services.history.heavy_reads import HeavyReads
from paceline.db.models.experiments import ExperimentRow
from paceline.db.repositories import experiment_analyses
from scripts.bench.stored_experiment import StoredExperiment, write_experiment

EXPERIMENTS = "/api/v1/experiments"


async def ended(services: Services, state: str = "completed", name: str = "sweep", since: datetime | None = None) -> str:
    """An experiment with stored trials that has ended just now, or at `since`."""
    experiment_id = await write_experiment(services.settings.data, services.settings.database_url, StoredExperiment(4, 12, name=name))
    async with services.write() as session:
        row = ExperimentRow
        state_since = since or services.now()
        await session.execute(update(row).where(row.id == experiment_id).values(state=state, state_since=state_since, settled=True))
    return experiment_id


async def analyzed_at(client: httpx.AsyncClient, experiment_id: str) -> Any:
    return (await client.get(f"{EXPERIMENTS}/{experiment_id}")).json()["analyzed_at"]


@pytest.fixture
def analyst(app: FastAPI, client: httpx.AsyncClient) -> Analyst:
    return Analyst(app.state.services, app.state.heavy_reads, DueLooks(app.state.services))


@pytest.mark.slow("the process that analyzes imports NumPy and SciPy")
async def test_what_has_ended_is_analyzed_once_its_last_points_are_there(client: httpx.AsyncClient, analyst: Analyst) -> None:
    since = analyst.services.now()
    experiment_id = await ended(analyst.services, since=since)
    await analyst.step_once(since + ANALYSIS_DELAY - timedelta(seconds=1))
    assert await analyzed_at(client, experiment_id) is None
    later = since + ANALYSIS_DELAY + timedelta(seconds=1)
    await analyst.step_once(later)
    made = await analyzed_at(client, experiment_id)
    assert made is not None
    assert (await client.get(f"{EXPERIMENTS}/{experiment_id}")).json()["headline"] is not None
    await analyst.step_once(later)
    assert await analyzed_at(client, experiment_id) == made


@pytest.mark.parametrize(("state", "is_due"), [("stopped", True), ("running", False), ("cancelled", False)])
async def test_only_what_has_ended_by_itself_or_by_its_budget(
    client: httpx.AsyncClient, analyst: Analyst, state: str, is_due: bool
) -> None:
    experiment_id = await ended(analyst.services, state)
    await analyst.step_once(analyst.services.now() + timedelta(minutes=1))
    assert (await analyzed_at(client, experiment_id) is not None) == is_due


async def test_the_longest_ended_is_analyzed_first_and_of_those_that_ended_together_the_first_by_id(services: Services) -> None:
    experiments = [await ended(services, name=name) for name in ("c", "a", "b")]
    now, row = services.now(), ExperimentRow
    async with services.write() as session:
        for experiment_id, age in zip(experiments, (1, 2, 1), strict=True):
            await session.execute(update(row).where(row.id == experiment_id).values(state_since=now - timedelta(minutes=age)))
    async with services.control.read() as session:
        found = await experiment_analyses.due(session, now)
    assert found == [experiments[1], *sorted((experiments[0], experiments[2]))]


async def test_one_that_cannot_be_analyzed_holds_up_no_other(
    client: httpx.AsyncClient, analyst: Analyst, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = await ended(analyst.services, name="broken")
    make = analysis.make

    async def fail(services: Services, reads: HeavyReads, experiment_id: str) -> bytes:
        if experiment_id == broken:
            raise RuntimeError("its points are gone")
        return await make(services, reads, experiment_id)

    monkeypatch.setattr(analysis, "make", fail)
    other = await ended(analyst.services)
    for seconds in (60, 61):
        await analyst.step_once(analyst.services.now() + timedelta(seconds=seconds))
    assert await analyzed_at(client, broken) is None
    assert await analyzed_at(client, other) is not None
    events = (await client.get("/api/v1/events", params={"limit": 50})).json()["items"]
    assert [event["message"] for event in events if event["type"] == "experiment.held_up"]
