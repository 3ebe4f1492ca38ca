"""The plan of an experiment: what would run of it."""

from __future__ import annotations

import httpx

from tests.api.test_experiments import EXPERIMENTS, document


async def test_a_plan_of_many_configurations_says_of_how_many_the_planner_was_asked(client: httpx.AsyncClient) -> None:
    rates = [0.001 * place for place in range(1, 27)]
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=document(grid={"optimizer.lr": rates}))).json()
    assert plan["not_planned"] == 2
    assert [each["memory_bytes"] is None for each in plan["configurations"]] == [False] * 24 + [True] * 2
