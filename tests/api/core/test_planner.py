"""Plans that take long, or for ever."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.core.planner import Planner
from paceline.api.errors import ProblemError
from tests import factories
from tests.api.test_plan_auto import GPT, JOBS, PLAN, auto, two_nodes
from tests.loop_watchdog import watched

sqlite = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
#: Of a reproducible job, each micro-batch is a leaf of the tree that is estimated.
MANY = {"steps": 10, "global_batch_size": 1 << 16, "micro_batch_size": 1}


async def test_a_large_question_is_answered_by_a_process_and_remembered() -> None:
    planner = Planner()
    assert await planner.run(math.gcd, 12, 18, small=False) == 6
    asked = await planner.run(time.monotonic_ns, small=False)
    assert await planner.run(time.monotonic_ns, small=False) == asked
    with pytest.raises(ValueError, match="math domain error"):
        await planner.run(math.sqrt, -1.0, small=False)
    with pytest.raises(ValueError, match="2 GiB of memory"):
        await planner.run(bytearray, 4 << 30, small=False)


async def test_a_question_over_its_time_is_given_up_and_the_next_one_answered() -> None:
    planner = Planner(limit_seconds=3)
    endless = asyncio.create_task(planner.run(time.sleep, 60, small=False))
    with pytest.raises(ProblemError, match="not made within 3 s"):
        await endless
    planner.limit_seconds = 60  # the next process starts no faster on a busy machine
    assert await planner.run(math.gcd, 12, 18, small=False) == 6


async def test_who_waits_too_long_for_a_turn_is_told_that_the_coordinator_is_busy() -> None:
    planner = Planner(limit_seconds=60)
    first = asyncio.create_task(planner.run(time.sleep, 60, small=False))
    while not planner._turn.locked():
        await asyncio.to_thread(int)
    planner.limit_seconds = 0.2
    with pytest.raises(ProblemError, match="other plans are being made"):
        await planner.run(time.sleep, 61, small=False)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not planner._turn.locked()


@pytest.mark.slow("chooses the plan of a job with as many micro-batches as a spec may have")
@sqlite
async def test_a_plan_of_many_micro_batches_does_not_keep_the_event_loop(client: httpx.AsyncClient, services: Services) -> None:
    """Of a batch of 4 million in micro-batches of one it was seconds and hundreds of megabytes, of a billion the end."""
    services.planner.limit_seconds = 120.0  # a busy machine may take its time beside the loop
    document = factories.job_spec().model_dump(mode="json")
    await client.post(PLAN, json=document)
    with watched() as watch:
        answer = await client.post(PLAN, json=document | {"training": MANY})
        beyond = await client.post(PLAN, json=document | {"training": {**MANY, "global_batch_size": 10**9}})
    assert (answer.status_code, answer.json()["micro_batches"]) == (200, 1 << 16)
    assert (beyond.status_code, beyond.json()["code"]) == (422, "invalid_spec")
    watch.assert_free()


@sqlite
async def test_a_choice_for_thousands_of_nodes_ends_in_a_clear_refusal(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services, slots=2)
    services.planner.limit_seconds = 0.5
    asked = auto(resources={"nodes": 4096}, training={"steps": 1, "global_batch_size": 1 << 16})
    await client.post(PLAN, json=factories.job_spec().model_dump(mode="json"))  # what the first request of a process prepares once
    with watched() as watch:
        answer = await client.post(PLAN, json=asked)
    assert (answer.status_code, answer.json()["code"]) == (422, "plan_too_large")
    assert "name the strategy" in answer.json()["detail"]
    watch.assert_free()


@sqlite
async def test_others_are_stored_while_a_plan_is_chosen(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice held SQLite's writer: everything else was refused as busy."""
    await two_nodes(services)
    run, begun, go_on = Planner.run, asyncio.Event(), asyncio.Event()

    async def slow(self: Planner, *arguments: Any, **options: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await run(self, *arguments, **options)

    monkeypatch.setattr(Planner, "run", slow)
    chosen = asyncio.create_task(client.post(JOBS, json=auto()))
    await asyncio.wait_for(begun.wait(), 5)
    plain = await asyncio.wait_for(client.post(JOBS, json=factories.job_spec().model_dump(mode="json")), 5)
    go_on.set()
    assert (plain.status_code, (await chosen).status_code) == (201, 201)


@sqlite
async def test_a_plan_is_chosen_again_when_the_nodes_have_changed_meanwhile(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_nodes(services)
    run, asked = Planner.run, 0

    async def meddled(self: Planner, *arguments: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            async with services.write() as session:
                await factories.create_node(session, name="small", slots=1, inventory={"hostname": "small", "memory_bytes": 2**30})
        return await run(self, *arguments, **options)

    monkeypatch.setattr(Planner, "run", meddled)
    answer = await client.post(JOBS, json=auto(model=GPT))
    assert answer.status_code == 201, answer.text
    assert (asked, answer.json()["choice"]["budget_bytes"]) == (2, int(0.9 * 2**30))
