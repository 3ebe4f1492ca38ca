"""Named views of the list of jobs: everybody sees them, their owner and admins change them; on both databases."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from paceline.api.core.context import Services
from tests import factories
from tests.api.test_jobs import code
from tests.conftest import Connect

VIEWS = "/api/v1/training/saved-views"
ROLES = {"ann": "member", "bob": "member", "vera": "viewer"}


async def test_a_view_is_saved_changed_and_deleted(client: httpx.AsyncClient) -> None:
    first = await client.put(f"{VIEWS}/Failed this week", json={"query": "status=failed"})
    assert (first.status_code, first.json()["created_by"]) == (200, "admin")
    await client.put(f"{VIEWS}/A view", json={"query": "user=ada"})
    await client.put(f"{VIEWS}/Failed this week", json={"query": "status=failed&project=text"})
    listed = (await client.get(VIEWS)).json()
    assert [(view["name"], view["query"]) for view in listed] == [
        ("A view", "user=ada"),
        ("Failed this week", "status=failed&project=text"),
    ]
    assert (await client.delete(f"{VIEWS}/A view")).status_code == 204
    assert [view["name"] for view in (await client.get(VIEWS)).json()] == ["Failed this week"]
    assert code(await client.delete(f"{VIEWS}/A view")) == (404, "not_found")


async def test_a_view_is_its_owners(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    async with services.write() as session:
        keys = {name: (await factories.create_user(session, name=name, role=role))[1] for name, role in ROLES.items()}
    async with connect(keys["ann"]) as ann, connect(keys["bob"]) as bob, connect(keys["vera"]) as vera:
        assert (await ann.put(f"{VIEWS}/mine", json={"query": "user=ann"})).status_code == 200
        assert code(await bob.put(f"{VIEWS}/mine", json={"query": ""})) == (403, "not_the_owner")
        assert code(await bob.delete(f"{VIEWS}/mine")) == (403, "not_the_owner")
        assert [view["name"] for view in (await vera.get(VIEWS)).json()] == ["mine"]
        assert code(await vera.put(f"{VIEWS}/other", json={"query": ""})) == (403, "forbidden")
    assert (await client.put(f"{VIEWS}/mine", json={"query": "user=ann&status=failed"})).json()["created_by"] == "ann"


async def test_a_view_has_a_name_and_a_query_of_some_length(client: httpx.AsyncClient) -> None:
    assert (await client.put(f"{VIEWS}/{'x' * 65}", json={"query": ""})).status_code == 400
    assert (await client.put(f"{VIEWS}/x", json={"query": "x" * 2001})).status_code == 422


async def test_a_view_is_named_with_any_signs_that_an_address_can_carry(client: httpx.AsyncClient) -> None:
    for name in ("Bäd <b> view", "50% loss? #1 & more", "%2F", "...and so on", "日本 🚀"):
        address = f"{VIEWS}/{quote(name, safe='')}"
        assert (await client.put(address, json={"query": ""})).json()["name"] == name
        assert [view["name"] for view in (await client.get(VIEWS)).json()] == [name]
        assert (await client.delete(address)).status_code == 204


@pytest.mark.parametrize("name", ["Bad / view", "a\\b", ".", "..", "...", "a\tb", "a\x7fb", "x" * 65])
async def test_a_name_that_an_address_cannot_carry_is_refused_with_its_limit(client: httpx.AsyncClient, name: str) -> None:
    address = VIEWS + "/" + quote(name, safe="").replace(".", "%2E")
    refused = await client.put(address, json={"query": ""})
    assert code(refused) == (400, "invalid_parameter")
    limit = "1 to 64 characters; no '/', no '\\', no control characters, not only dots"
    assert refused.json()["detail"].endswith(f"use {limit}")
    assert (await client.get(VIEWS)).json() == []


async def test_the_audit_says_who_changed_and_who_deleted_a_view(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    async with services.write() as session:
        key = (await factories.create_user(session, name="ann", role="member"))[1]
    async with connect(key) as ann:
        await ann.put(f"{VIEWS}/mine", json={"query": "user=ann"})
    await client.put(f"{VIEWS}/mine", json={"query": ""})
    await client.delete(f"{VIEWS}/mine")
    told = (await client.get("/api/v1/audit", params={"action": "view"})).json()["items"]
    assert [(each["action"], each["user_name"], each["message"]) for each in told] == [
        ("view.deleted", "admin", "admin deleted the view mine of ann"),
        ("view.saved", "admin", "admin changed the view mine of ann"),
        ("view.saved", "ann", "ann saved the view mine"),
    ]
    events = (await client.get("/api/v1/events")).json()["items"]
    assert {"name": "mine", "query": "", "former_query": "user=ann"} in [each["data"] for each in events]
