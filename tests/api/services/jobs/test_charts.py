"""Charts of a project: shared by its people, changed by one at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.schemas.charts import ChartOrder
from paceline.api.services.jobs import charts
from tests import factories
from tests.api.loops.test_retention import waits_for_a_lock
from tests.conftest import Connect

CHARTS = "/api/v1/training/charts"


def wanted(name: str = "Losses", project: str = "vision", **definition: Any) -> dict[str, Any]:
    return {"project": project, "name": name, "definition": {"metrics": ["loss"], **definition}}


async def create(client: httpx.AsyncClient, name: str = "Losses", project: str = "vision", **definition: Any) -> Any:
    answer = await client.post(CHARTS, json=wanted(name, project, **definition))
    assert answer.status_code == 201, answer.text
    assert answer.headers["etag"] == '"1"'
    return answer.json()


async def names(client: httpx.AsyncClient, project: str = "vision") -> list[str]:
    return [each["name"] for each in (await client.get(CHARTS, params={"project": project})).json()]


async def test_charts_are_those_of_their_project_in_the_order_of_their_making(client: httpx.AsyncClient) -> None:
    await create(client, "b", metrics=["loss", "eval_loss"], runs=["01J"], axis="tokens", scale="log")
    await create(client, "a")
    await create(client, "elsewhere", project="text")
    found = (await client.get(CHARTS, params={"project": "vision"})).json()
    assert [each["name"] for each in found] == ["b", "a"]
    assert found[0]["definition"] == {"metrics": ["loss", "eval_loss"], "runs": ["01J"], "axis": "tokens", "scale": "log"}
    assert (found[0]["revision"], found[0]["created_by"]) == (1, found[0]["updated_by"])


async def test_a_change_of_an_outdated_revision_is_refused(client: httpx.AsyncClient) -> None:
    chart = await create(client)
    body = {"name": "New", "definition": {"metrics": ["mfu"]}}
    first = await client.put(f"{CHARTS}/{chart['id']}", json=body, headers={"If-Match": '"1"'})
    assert (first.status_code, first.headers["etag"], first.json()["revision"]) == (200, '"2"', 2)
    second = await client.put(f"{CHARTS}/{chart['id']}", json=body | {"name": "Lost"}, headers={"If-Match": '"1"'})
    assert (second.status_code, second.json()["code"]) == (412, "precondition_failed")
    deleted = await client.delete(f"{CHARTS}/{chart['id']}", headers={"If-Match": '"1"'})
    assert deleted.status_code == 412
    assert await names(client) == ["New"]
    assert (await client.delete(f"{CHARTS}/{chart['id']}", headers={"If-Match": '"2"'})).status_code == 204
    assert await names(client) == []
    assert (await client.get(f"{CHARTS}/{chart['id']}")).status_code == 404


async def test_the_order_is_kept_and_ids_that_are_gone_do_no_harm(client: httpx.AsyncClient) -> None:
    ids = [(await create(client, name))["id"] for name in ("a", "b", "c")]
    other = await create(client, "other", project="text")
    answer = await client.put(f"{CHARTS}/order", json={"project": "vision", "ids": [ids[2], "gone", ids[0], other["id"]]})
    assert [each["name"] for each in answer.json()] == ["c", "a", "b"]
    await create(client, "d")
    assert await names(client) == ["c", "a", "b", "d"]


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_of_two_orders_at_once_the_second_keeps_the_first_where_it_names_no_chart(
    client: httpx.AsyncClient, services: Services
) -> None:
    ids = [(await create(client, name))["id"] for name in ("a", "b", "c")]
    async with services.write() as session:
        await charts.reorder(session, ChartOrder(project="vision", ids=ids[::-1]))
        second = asyncio.create_task(client.put(f"{CHARTS}/order", json={"project": "vision", "ids": []}))
        await waits_for_a_lock(services)
    assert [each["name"] for each in (await second).json()] == ["c", "b", "a"]


@pytest.mark.parametrize(
    "definition",
    [
        {"metrics": []},
        {"metrics": ["loss", "loss"]},
        {"metrics": [f"m{number}" for number in range(9)]},
        {"metrics": ["x" * 300]},
        {"metrics": ["loss"], "axis": "parsecs"},
        {"metrics": ["loss"], "runs": ["a"] * 2},
        {"metrics": ["loss"], "color": "red"},
    ],
)
async def test_a_definition_that_no_chart_can_have_is_refused(client: httpx.AsyncClient, definition: dict[str, Any]) -> None:
    answer = await client.post(CHARTS, json=wanted() | {"definition": definition})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert await names(client) == []


async def test_a_name_of_spaces_is_refused_and_others_are_trimmed(client: httpx.AsyncClient) -> None:
    assert (await client.post(CHARTS, json=wanted("   "))).status_code == 422
    assert (await create(client, " Verlust 损失 "))["name"] == "Verlust 损失"


async def test_a_chart_that_is_sent_twice_is_made_once(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        assert (await client.post(CHARTS, json=wanted(), headers={"Idempotency-Key": "k"})).status_code == 201
    assert await names(client) == ["Losses"]


async def test_there_is_a_limit(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MOST_CHARTS", 1)
    await create(client)
    answer = await client.post(CHARTS, json=wanted("more"))
    assert answer.json()["detail"] == "project vision has 1 charts, which is the limit; remove one first"


async def test_a_viewer_sees_charts_and_a_member_changes_those_of_others(
    client: httpx.AsyncClient, connect: Connect, services: Services
) -> None:
    chart = await create(client)
    async with services.write() as session:
        _, viewers = await factories.create_user(session, name="vera", role="viewer")
        _, members = await factories.create_user(session, name="mel", role="member")
    async with connect(viewers) as viewer:
        assert await names(viewer) == ["Losses"]
        assert (await viewer.post(CHARTS, json=wanted("x"))).status_code == 403
        assert (await viewer.put(f"{CHARTS}/order", json={"project": "vision", "ids": []})).status_code == 403
        assert (await viewer.delete(f"{CHARTS}/{chart['id']}")).status_code == 403
    async with connect(members) as member:
        changed = await member.put(f"{CHARTS}/{chart['id']}", json={"name": "Mel's", "definition": {"metrics": ["loss"]}})
        assert (changed.status_code, changed.json()["updated_by"]) == (200, "mel")


async def test_the_audit_says_who_deleted_a_chart(client: httpx.AsyncClient) -> None:
    chart = await create(client, "Losses")
    await client.delete(f"{CHARTS}/{chart['id']}")
    (told,) = (await client.get("/api/v1/audit", params={"action": "chart"})).json()["items"]
    assert (told["action"], told["message"]) == ("chart.deleted", "admin deleted the chart Losses of project vision")
