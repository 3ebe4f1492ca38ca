"""Reads of whole histories: few at a time, computed once, never in the way of others, and not for the sake of a HEAD."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from time import monotonic
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.services.history import history_process
from paceline.api.services.history.heavy_reads import HeavyReads, KeptAnswer, SourceVersions
from paceline.db.session import Database
from paceline.monitoring.points import MetricRecord
from tests import factories
from tests.api.conftest import Agent

SAMPLES = {"samples": 8.0, "epoch_samples": 64.0, "step_seconds": 0.1}


def steps(first: int, count: int) -> list[MetricRecord]:
    return [
        MetricRecord(seq=step, step=step, time=float(step), values={"first_sample": 8.0 * (step - 1), **SAMPLES})
        for step in range(first, first + count)
    ]


@pytest.fixture
def reads(app: FastAPI) -> HeavyReads:
    found: HeavyReads = app.state.heavy_reads
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[history_process.HistoryQuestion]:
    """What was computed."""
    questions: list[history_process.HistoryQuestion] = []
    answer = history_process.answer

    async def noting(question: history_process.HistoryQuestion, *rest: Any) -> Any:
        questions.append(question)
        return await answer(question, *rest)

    monkeypatch.setattr(history_process, "answer", noting)
    return questions


async def test_a_log_of_reserved_names_freezes_no_coordinator(agent: Agent, client: httpx.AsyncClient) -> None:
    forged: list[dict[str, Any]] = [
        {"first_sample": 0.0, "samples": 1e15, "epoch_samples": 1.0},
        {"first_sample": "NaN", "samples": 1.0, "step_seconds": "NaN"},
        {"first_sample": 0.5, "samples": "Infinity", "epoch_samples": "-Infinity", "step_seconds": 1e300},
        {"first_sample": -1.0, "samples": 0.0, "epoch_samples": 0.0, "step_seconds": -1.0},
    ]
    told = [MetricRecord(seq=n, step=n, time=1.0, values=values) for n, values in enumerate(forged, 1)]
    await agent.upload(agent.batch(metrics=told))
    async with asyncio.timeout(5):
        found = (await client.get(f"/api/v1/training/jobs/{agent.job_id}/samples")).json()
    assert (found["steps"], len(found["epochs"])) == (1, 1_000)
    assert "3 steps told places that cannot be: they are left out" in found["findings"]
    for page in ("goodput", "incidents", "performance"):
        assert (await client.get(f"/api/v1/training/jobs/{agent.job_id}/{page}")).status_code == 200, page


async def test_what_is_asked_again_is_computed_once_until_something_new_is_known(
    agent: Agent, client: httpx.AsyncClient, asked: list[history_process.HistoryQuestion]
) -> None:
    url = f"/api/v1/training/jobs/{agent.job_id}/samples"
    await agent.upload(agent.batch(metrics=steps(1, 5)))
    assert (await client.head(url)).status_code == 200
    assert (await client.head(url + "x")).status_code == 404
    assert not asked, "a HEAD computes nothing"
    answers = await asyncio.gather(*(client.get(url) for _ in range(10)))
    assert {answer.json()["steps"] for answer in answers} == {5}
    assert len(asked) == 1
    await agent.upload(agent.batch(metrics=steps(6, 1)))
    assert (await client.get(url)).json()["steps"] == 6


def test_a_long_answer_of_a_running_job_is_told_again_for_a_while_and_never_after_its_end() -> None:
    """`wait` and then `show` had the goodput of a minute before the job ended."""
    question = history_process.HistoryQuestion("goodput", ("job",))
    running, later, ended = (SourceVersions(((1, seq, 1),), has_ended, 5_000) for seq, has_ended in ((1, False), (2, False), (3, True)))
    kept = KeptAnswer("answer", running, monotonic(), took=60.0)
    assert [kept.is_current(question, state) for state in (running, later, ended)] == [True, True, False]
    assert KeptAnswer("answer", ended, monotonic(), took=0.0).is_current(question, ended)


async def test_a_worker_answers_of_the_time_at_which_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start took ten seconds, and the steps of those were told of a job ten seconds younger."""

    async def answer(_: object, __: object, ___: object, now: datetime) -> datetime:
        return now

    monkeypatch.setattr(history_process, "answer", answer)
    nothing = cast("Database", None)
    found, took = await history_process.timed_answer(
        history_process.HistoryQuestion("goodput", ("job",)), datetime(2026, 1, 1, tzinfo=UTC), monotonic() - 10.0, nothing, nothing
    )
    assert datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC) <= found < datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert 0.0 <= took < 10.0


async def test_too_many_heavy_reads_are_told_to_come_again(
    agent: Agent, client: httpx.AsyncClient, reads: HeavyReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()

    async def stuck(*_: Any) -> Any:
        await goes_on.wait()
        raise TimeoutError

    monkeypatch.setattr(history_process, "answer", stuck)
    reads.turns.wait_seconds = 0.05
    urls = [f"/api/v1/training/jobs/{agent.job_id}/samples?step={step}" for step in (1, 2, 3)]
    waiting = [asyncio.create_task(client.get(url)) for url in urls]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    answer = done.pop().result()
    assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (503, "busy", "1")
    goes_on.set()
    await asyncio.gather(*waiting)


async def test_downloads_beyond_the_limit_are_told_to_come_again(agent: Agent, client: httpx.AsyncClient, app: FastAPI) -> None:
    await agent.upload(agent.batch(metrics=steps(1, 3), logs=factories.log_lines(3)))
    paths = [f"/api/v1/training/jobs/{agent.job_id}/{name}" for name in ("tensorboard", "logs/download")]
    app.state.downloads.wait_seconds = 0.05
    async with app.state.downloads.turn(app.state.downloads.limit):
        for path in paths:
            assert (await client.get(path)).status_code == 503
            assert (await client.head(path)).status_code == 200
    assert [(await client.get(path)).status_code for path in paths] == [200, 200]


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_a_long_history_is_read_in_a_process_of_its_own_with_the_same_answer(
    agent: Agent, client: httpx.AsyncClient, reads: HeavyReads, asked: list[history_process.HistoryQuestion]
) -> None:
    await agent.upload(agent.batch(metrics=steps(1, 20)))
    urls = [f"/api/v1/training/jobs/{agent.job_id}/{name}" for name in ("samples", "goodput", "samples?cursor=nonsense")]
    here = [(await client.get(url)).json() for url in urls[:1]]
    reads.forget()
    reads.short_steps = 0
    count = len(asked)
    answers = [await client.get(url, timeout=60) for url in urls]
    assert answers[0].json() == here[0]
    assert [answer.status_code for answer in answers] == [200, 200, 400]
    assert len(asked) == count, "nothing of it was computed here"
