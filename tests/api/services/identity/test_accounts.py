"""A name is of one working key of a user, also when two are asked for at one instant, and on a database that has two already."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import select, update

from paceline.api.core.context import Services
from paceline.db.models.events import EventRow
from paceline.db.models.identity import ApiKeyRow
from tests import factories
from tests.conftest import Connect

KEYS = "/api/v1/keys"
AT_ONCE = 6


Terminals = list[httpx.AsyncClient]


@pytest.fixture
async def terminals(client: httpx.AsyncClient, connect: Connect) -> AsyncIterator[Terminals]:
    """One user at several places, each with a key of its own: two requests with one key wait for each other."""
    keys = [(await client.post(KEYS, json={"name": f"terminal {number}", "role": "admin"})).json()["key"] for number in range(AT_ONCE)]
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(key)) for key in keys]


async def statuses(terminals: Terminals, name: str) -> Counter[int]:
    """What is answered to requests for a key of this name that come at one instant."""
    answers = await asyncio.gather(*(terminal.post(KEYS, json={"name": name}) for terminal in terminals))
    for answer in answers:
        assert answer.status_code == 201 or (answer.json()["code"], "choose another name" in answer.text) == ("already_exists", True), (
            answer.text
        )
    return Counter(answer.status_code for answer in answers)


async def test_requests_at_one_instant_make_one_key_of_a_name(client: httpx.AsyncClient, terminals: Terminals) -> None:
    for name in ("ci", "laptop", "cluster"):
        assert await statuses(terminals, name) == {201: 1, 409: AT_ONCE - 1}
    found = Counter(key["name"] for key in (await client.get(KEYS)).json()["items"])
    assert (found["ci"], found["laptop"], found["cluster"]) == (1, 1, 1)


async def test_the_name_of_a_key_that_no_longer_works_is_taken_once(
    client: httpx.AsyncClient, services: Services, terminals: Terminals
) -> None:
    """One was revoked by a coordinator that knows nothing of names that are held, one has expired."""
    for name, ended in (("revoked", {"revoked_at": services.now()}), ("expired", {"expires_at": services.now() - timedelta(seconds=1)})):
        (await client.post(KEYS, json={"name": name})).raise_for_status()
        async with services.write() as session:
            await session.execute(update(ApiKeyRow).where(ApiKeyRow.name == name).values(ended))
        assert await statuses(terminals, name) == {201: 1, 409: AT_ONCE - 1}


async def test_users_have_names_of_their_own_at_one_instant(services: Services, client: httpx.AsyncClient, connect: Connect) -> None:
    async with services.write() as session:
        _, key = await factories.create_user(session, name="bob", role="member")
    async with connect(key) as bob:
        answers = await asyncio.gather(*(each.post(KEYS, json={"name": "ci"}) for each in (client, bob)))
    assert [answer.status_code for answer in answers] == [201, 201]


async def test_keys_of_one_name_from_before_go_on_working_and_are_revoked_one_by_one(
    client: httpx.AsyncClient, services: Services, connect: Connect
) -> None:
    made = [(await client.post(KEYS, json={"name": name})).json() for name in ("ci", "other")]
    async with services.write() as session:
        await session.execute(update(ApiKeyRow).where(ApiKeyRow.name.in_(("ci", "other"))).values(name="ci", holds_name=False))
    for key in made:
        async with connect(key["key"]) as holder:
            assert (await holder.get("/api/v1/auth/me")).status_code == 200
        assert (await client.post(KEYS, json={"name": "ci"})).status_code == 409
        assert (await client.delete(f"{KEYS}/{key['id']}")).status_code == 204
    assert (await client.post(KEYS, json={"name": "ci"})).status_code == 201
    async with services.write() as session:
        held = (await session.scalars(select(ApiKeyRow.id).where(ApiKeyRow.name == "ci", ApiKeyRow.holds_name))).all()
    assert len(held) == 1


async def test_the_audit_has_the_revoked_keys_that_one_key_made_in_the_order_of_their_making(
    client: httpx.AsyncClient, services: Services, connect: Connect
) -> None:
    parent = (await client.post(KEYS, json={"name": "parent"})).json()
    async with connect(parent["key"]) as holder:
        made = [(await holder.post(KEYS, json={"name": f"child {number}"})).json()["id"] for number in range(3)]
    async with services.write() as session:  # PostgreSQL then finds the first one behind the others
        await session.execute(update(ApiKeyRow).where(ApiKeyRow.id == made[0]).values(last_used_at=services.now()))
    assert (await client.delete(f"{KEYS}/{parent['id']}")).status_code == 204
    async with services.control.read() as session:
        revoked = await session.scalars(select(EventRow).where(EventRow.type == "key.revoked").order_by(EventRow.seq))
    assert [event.data["id"] for event in revoked] == [parent["id"], *made]


async def test_keys_are_listed_with_the_newest_first_page_by_page(client: httpx.AsyncClient) -> None:
    """The oldest fifty came first: a key that was made just now was on the last page."""
    made = [(await client.post(KEYS, json={"name": f"key {number}"})).json()["name"] for number in range(4)]
    first = (await client.get(KEYS, params={"limit": 2})).json()
    assert [key["name"] for key in first["items"]] == made[:1:-1]
    second = (await client.get(KEYS, params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [key["name"] for key in second["items"]] == made[1::-1]
    rest = (await client.get(KEYS, params={"limit": 200, "cursor": second["next_cursor"]})).json()
    assert rest["next_cursor"] is None
    assert not {key["name"] for key in rest["items"]} & set(made)


async def test_a_login_link_for_a_user_who_is_disabled_is_refused_with_the_way_out(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        user, _ = await factories.create_user(session, name="bob", role="member")
    (await client.patch(f"/api/v1/users/{user.id}", json={"disabled": True})).raise_for_status()
    answer = await client.post(f"/api/v1/users/{user.id}/login-link")
    assert (answer.status_code, answer.json()["code"]) == (409, "user_disabled")
    assert "enable the user first" in answer.json()["detail"]
