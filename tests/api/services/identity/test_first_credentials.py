"""A coordinator accepts what whoever started it has made beforehand."""

from __future__ import annotations

import logging

import httpx
import pytest
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.services.identity import first_credentials
from paceline.credentials import FirstCredentials, file_in
from paceline.db.models.events import EventRow
from tests.conftest import Connect

JOIN = "/api/v1/agents/join"


@pytest.fixture(autouse=True)
def data(services: Services) -> None:
    """The data folder, which whoever starts a coordinator has made before it hands anything over."""
    services.settings.data.mkdir(exist_ok=True)


async def me(client: httpx.AsyncClient, key: str) -> httpx.Response:
    return await client.get("/api/v1/auth/me", headers={"Authorization": f"Bearer {key}"})


async def test_its_key_is_an_admins_and_its_tokens_let_a_node_in_each(services: Services, connect: Connect) -> None:
    made = FirstCredentials.make("local", 2)
    made.hand_over(services.settings.data)
    await first_credentials.accept(services)
    async with connect() as client:
        answer = (await me(client, made.key)).json()
        joined = [
            await client.post(JOIN, json={"token": token, "name": f"node-{number}"})
            for number, token in enumerate((*made.join_tokens, made.join_tokens[0]))
        ]
    assert (answer["name"], answer["role"]) == ("admin", "admin")
    assert [response.status_code // 100 for response in joined] == [2, 2, 4]
    async with services.control.read() as session:
        told = list(await session.scalars(select(EventRow.message).where(EventRow.type == "key.created")))
    assert told == [f"whoever started the coordinator made API key {made.key[:9]}... (local) for admin"]
    assert not file_in(services.settings.data).exists()


async def test_an_older_key_of_the_name_opens_nothing_any_more(services: Services, connect: Connect) -> None:
    older, newer = FirstCredentials.make("local", 0), FirstCredentials.make("local", 0)
    for made in (older, newer):
        made.hand_over(services.settings.data)
        await first_credentials.accept(services)
    async with connect() as client:
        assert [(await me(client, made.key)).status_code for made in (older, newer)] == [401, 200]


async def test_a_damaged_file_is_told_and_nothing_is_accepted(services: Services, caplog: pytest.LogCaptureFixture) -> None:
    file_in(services.settings.data).write_text('{"key_name": "local"}')
    with caplog.at_level(logging.ERROR):
        await first_credentials.accept(services)
    assert "first_credentials.json was damaged (Object missing required field `key`) and is left out" in caplog.text
    async with services.control.read() as session:
        assert (await session.scalars(select(EventRow))).all() == []
