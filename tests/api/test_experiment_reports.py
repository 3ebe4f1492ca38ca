"""Analyses and reports of experiments over HTTP, on both databases: made in a worker process, stored, and answered without being parsed."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.schemas.experiments import ExperimentAnalysis
from paceline.db.models.experiments import ExperimentRow
from scripts.bench.stored_experiment import StoredExperiment, write_experiment
from tests import factories
from tests.conftest import Connect
from tests.loop_watchdog import watched

EXPERIMENTS = "/api/v1/experiments"
HOSTILE = "</title><script>alert(1)</script>"


@pytest.fixture
async def experiment_id(services: Services) -> str:
    return await write_experiment(services.settings.data, services.settings.database_url, StoredExperiment(20, 40, description=HOSTILE))


def in_order(answer: httpx.Response) -> Any:
    """The analysis of an answer, its objects as pairs."""
    return dict(json.loads(answer.content, object_pairs_hook=list))["analysis"]


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_an_analysis_is_made_stored_and_exported_in_every_format(
    client: httpx.AsyncClient, services: Services, experiment_id: str
) -> None:
    url = f"{EXPERIMENTS}/{experiment_id}"
    await client.get(url)  # the first request of an app makes its routes
    with watched() as watch:
        made, beside = await asyncio.gather(client.post(f"{url}/analyze"), client.post(f"{url}/analyze"))
    watch.assert_free()
    assert made.json()["seconds"] == beside.json()["seconds"], "who asks meanwhile gets the same work"
    assert made.status_code == 200, made.text
    analysis = ExperimentAnalysis.model_validate_json(made.content)
    assert (analysis.experiment_id, analysis.complete, analysis.analysis.completed) == (experiment_id, True, 20)
    stored = await client.get(f"{url}/analysis")
    assert ExperimentAnalysis.model_validate_json(stored.content) == analysis
    assert in_order(stored) == in_order(made), "the axes of a table have the order of the spec, and parts of a step their own"
    await _exports_open(client, url)
    await _page_of_the_experiment_has_the_headline(client, url, analysis)
    await _posted_again_it_is_no_longer_complete(client, services, experiment_id)


async def _exports_open(client: httpx.AsyncClient, url: str) -> None:
    async def exported(**parameters: str) -> httpx.Response:
        answer = await client.get(f"{url}/export", params=parameters)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-disposition"].startswith('attachment; filename="sweep-')
        return answer

    page = await exported()
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<script" not in page.text
    assert "&lt;script&gt;alert(1)" in page.text
    assert page.text.count("<figure>") >= 5
    assert (await exported(format="png", figure="throughput", theme="dark")).content.startswith(b"\x89PNG\r\n")
    assert b"<svg" in (await exported(format="svg", figure="heatmap", x="training.global_batch_size", y="parallelism.strategy")).content
    assert len(list(csv.DictReader(io.StringIO((await exported(format="csv")).text)))) == 4
    assert json.loads((await exported(format="json")).content)["analysis"]["trials"] == 20
    assert (await exported(format="md")).text.startswith("# sweep")
    assert code(await client.get(f"{url}/export", params={"format": "svg", "figure": "scaling"})) == (409, "nothing_to_show")
    head = await client.head(f"{url}/export")
    assert (head.status_code, head.content) == (200, b"")


async def _page_of_the_experiment_has_the_headline(client: httpx.AsyncClient, url: str, analysis: ExperimentAnalysis) -> None:
    found: dict[str, Any] = (await client.get(url)).json()
    recommended = [each for each in analysis.analysis.sentences if each.kind == "recommendation"]
    assert found["headline"] == recommended[0].model_dump(mode="json")
    assert found["analyzed_at"] == analysis.model_dump(mode="json")["made_at"]


async def _posted_again_it_is_no_longer_complete(client: httpx.AsyncClient, services: Services, experiment_id: str) -> None:
    async with services.write() as session:
        row = await session.get(ExperimentRow, experiment_id)
        assert row is not None
        row.state = "running"
    assert (await client.get(f"{EXPERIMENTS}/{experiment_id}/analysis")).json()["complete"] is False


async def test_what_is_not_analyzed_says_how(client: httpx.AsyncClient, experiment_id: str) -> None:
    for page in ("analysis", "export", "export?format=csv"):
        answer = await client.get(f"{EXPERIMENTS}/{experiment_id}/{page}")
        assert code(answer) == (409, "not_analyzed")
        assert f"POST {EXPERIMENTS}/{experiment_id}/analyze" in answer.json()["detail"]
    for method, page in (("POST", "analyze"), ("GET", "analysis"), ("GET", "export")):
        assert code(await client.request(method, f"{EXPERIMENTS}/none/{page}")) == (404, "not_found")


async def test_orders_that_mean_nothing_are_refused(client: httpx.AsyncClient, experiment_id: str) -> None:
    for query in ("format=svg", "format=png&figure=speed", "format=csv&figure=loss", "x=world_size"):
        assert code(await client.get(f"{EXPERIMENTS}/{experiment_id}/export?{query}")) == (400, "invalid_parameter")
    assert (await client.get(f"{EXPERIMENTS}/{experiment_id}/export?format=pdf")).status_code in (400, 422)


async def test_viewers_read_and_members_analyze(services: Services, connect: Connect, experiment_id: str) -> None:
    async with services.write() as session:
        _, key = await factories.create_user(session, name="vera", role="viewer")
    async with connect(key) as viewer:
        assert code(await viewer.post(f"{EXPERIMENTS}/{experiment_id}/analyze")) == (403, "forbidden")
        assert code(await viewer.get(f"{EXPERIMENTS}/{experiment_id}/analysis")) == (409, "not_analyzed")
