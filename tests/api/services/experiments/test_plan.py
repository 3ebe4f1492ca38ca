"""The plan of an experiment: what would run of it."""

from __future__ import annotations

import httpx
import pytest

from paceline.api.core.context import Services
from tests.api.test_experiments import EXPERIMENTS, document, end, post, step

RATES = {"optimizer.lr": {"low": 1e-4, "high": 1, "scale": "log"}}


async def test_a_plan_of_many_configurations_says_of_how_many_the_planner_was_asked(client: httpx.AsyncClient) -> None:
    rates = [0.001 * place for place in range(1, 27)]
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=document(grid={"optimizer.lr": rates}))).json()
    assert plan["not_planned"] == 2
    assert [each["memory_bytes"] is None for each in plan["configurations"]] == [False] * 24 + [True] * 2


async def test_the_plan_of_a_search_has_an_estimate_by_earlier_jobs(client: httpx.AsyncClient, services: Services) -> None:
    """It said that no time of a step is known, where the plan of a grid of the same job had one."""
    await post(client, name="before", at_once=1)
    await step(services)
    await end(services, "before-0")
    (grid, search) = [
        (await client.post(f"{EXPERIMENTS}/plan", json=document(**changes))).json()
        for changes in ({"grid": {"optimizer.lr": [0.1, 0.01, 0.001]}}, {"grid": {}, "search": {"trials": 3, "parameters": RATES}})
    ]
    assert (search["trials"], search["by_earlier_jobs"]) == (3, True)
    assert (search["seconds"], search["slot_hours"]) == (grid["seconds"], grid["slot_hours"]) == (180, pytest.approx(180 / 3600))


@pytest.mark.parametrize("path", ["optimizer..lr", "", "optimizer lr", "1.lr"])
async def test_a_path_that_is_none_is_refused_in_words(client: httpx.AsyncClient, path: str) -> None:
    """It was told the regular expression that paths match."""
    answer = (await client.post(f"{EXPERIMENTS}/plan", json=document(grid={path: [1, 2]}))).json()
    (error,) = answer["errors"]
    assert (error["pointer"], error["hint"]) == (f"/grid/{path}", "for example optimizer.lr")
    assert "use the names of fields of a job spec, with dots between them" in error["message"]
