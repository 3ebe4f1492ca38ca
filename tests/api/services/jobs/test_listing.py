"""Lists of jobs by everything that they can be filtered by, and where a page is in its list; on both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.services.jobs import listing
from paceline.cluster.states import JobState
from paceline.db.models.jobs import JobRow
from tests import factories
from tests.api.test_jobs import JOBS, SCRIPT, code, names

LATER = factories.START + timedelta(days=2)


@pytest.fixture
async def four(services: Services) -> dict[str, JobRow]:
    """Jobs by name: of two users, three projects and two models, one of them archived."""
    wanted: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "base": ({"project": "text", "description": "The Baseline of Émile"}, {"created_by": "ada"}),
        "wide": ({"project": "text", "labels": {"team": "nlp"}}, {"created_by": "bob", "created_at": LATER}),
        "own": ({"project": "vision", **SCRIPT}, {"created_by": "ada", "notes": "diverged at 3e-4"}),
        "old": ({"project": "attic"}, {"created_by": "bob", "archived_at": LATER, "state": JobState.COMPLETED}),
    }
    async with services.write() as session:
        return {
            name: await factories.create_job(session, spec=factories.job_spec(name=name, **spec), **columns)
            for name, (spec, columns) in wanted.items()
        }


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["base", "own", "wide"]),
        ({"archived": "include"}, ["base", "old", "own", "wide"]),
        ({"archived": "only"}, ["old"]),
        ({"user": "ada"}, ["base", "own"]),
        ({"project": "text,vision"}, ["base", "own", "wide"]),
        ({"project": "text", "user": "bob"}, ["wide"]),
        ({"model": "script"}, ["own"]),
        ({"model": "mlp, script"}, ["base", "own", "wide"]),
        ({"name": "base"}, ["base"]),
        ({"name": "bas"}, []),
        ({"q": "baseline"}, ["base"]),
        ({"q": "ÉMILE"}, ["base"]),
        ({"q": "team=nlp"}, ["wide"]),
        ({"q": "DIVERGED"}, ["own"]),
        ({"q": "vision"}, []),
        ({"created_after": LATER.isoformat()}, ["wide"]),
        ({"created_before": LATER.isoformat()}, ["base", "own"]),
    ],
)
async def test_each_filter(client: httpx.AsyncClient, params: dict[str, str], expected: list[str]) -> None:
    assert await names(client, sort="name", **params) == expected


@pytest.mark.parametrize("params", [{"created_after": "2026-11-20T12:00:00"}, {"archived": "yes"}, {"created_before": "yesterday"}])
async def test_what_a_filter_cannot_mean_is_refused(client: httpx.AsyncClient, params: dict[str, str]) -> None:
    status, problem = code(await client.get(JOBS, params=params))
    assert (problem, 400 <= status < 500) == ("invalid_parameter", True)


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("sort", ["name", "-name", "created_at", "-priority"])
async def test_pages_say_where_they_are_in_the_list(client: httpx.AsyncClient, sort: str) -> None:
    told, cursor = [], {}
    while True:
        answer = await client.get(JOBS, params={"sort": sort, "limit": 2, "count": "true", "archived": "include", **cursor})
        page = answer.json()
        told.append((page["first"], len(page["items"]), page["total"]))
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert told == [(1, 2, 4), (3, 2, 4)]


@pytest.mark.usefixtures("four")
async def test_counting_is_for_who_asks_for_it(client: httpx.AsyncClient) -> None:
    plain = (await client.get(JOBS)).json()
    assert (plain["total"], plain["first"]) == (None, None)
    none = (await client.get(JOBS, params={"q": "nothing", "count": "true", "fields": "name"})).json()
    assert none == {"items": [], "next_cursor": None, "total": 0, "first": None}


@pytest.mark.usefixtures("four")
async def test_facets_are_the_values_that_jobs_have(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/v1/training/job-facets")).json() == {
        "projects": ["attic", "text", "vision"],
        "users": ["ada", "bob"],
        "models": ["mlp", "script"],
        "labels": {"team": ["nlp"]},
    }


async def test_of_too_many_labels_those_of_the_newest_jobs_are_offered(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were any, and others on each database."""
    monkeypatch.setattr(listing, "MOST_LABEL_SETS", 2)
    async with services.write() as session:
        for team in ("a", "b", "c", "a"):
            await factories.create_job(session, spec=factories.job_spec(labels={"team": team}))
    assert (await client.get("/api/v1/training/job-facets")).json()["labels"] == {"team": ["a", "c"]}


async def test_a_job_tells_how_long_it_has_held_slots(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        running = await factories.create_running_job(session, node, ran_seconds=30.0)
        await factories.create_job(session, spec=factories.job_spec(name="paused"), state=JobState.PAUSED, ran_seconds=40.0)
    listed = {job["name"]: job["ran_seconds"] for job in (await client.get(JOBS)).json()["items"]}
    since_it_started = (services.now() - factories.START).total_seconds()
    assert listed["digits"] == pytest.approx(30.0 + since_it_started, abs=60)
    assert listed["paused"] == 40.0
    assert (await client.get(f"{JOBS}/{running.id}")).json()["ran_seconds"] >= listed["digits"]
