"""The two doors that answer strangers: signing in, and joining as a node."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from paceline.api.core.context import Services
from tests import factories
from tests.api.middleware.test_gate import ask
from tests.conftest import Connect

#: What is told here does not go by the database, but for the writer's turn, which SQLite alone has.
pytestmark = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)

JOIN, LOGIN = "/api/v1/agents/join", "/api/v1/auth/login"
BODIES: dict[str, Any] = {JOIN: {"token": "pj_wrong", "name": "n1"}, LOGIN: {"token": "wrong"}}


async def test_a_join_whose_body_never_comes_holds_no_transaction(app: FastAPI, client: httpx.AsyncClient) -> None:
    """On SQLite it held the only writer's turn: nothing could be submitted."""
    waits = asyncio.Event()

    async def never() -> Message:
        waits.set()
        await asyncio.Event().wait()
        raise AssertionError

    joining = asyncio.create_task(ask(app, "POST", JOIN, never, ("content-length", "100")))
    await asyncio.wait_for(waits.wait(), 5)
    try:
        answer = await asyncio.wait_for(client.post("/api/v1/training/jobs", json=factories.job_spec().model_dump(mode="json")), 5)
        assert answer.status_code == 201
    finally:
        joining.cancel()


async def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_error_in_the_log(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    messages: list[Message] = [{"type": "http.request", "body": b'{"token"', "more_body": True}, {"type": "http.disconnect"}]

    async def leave() -> Message:
        return messages.pop(0)

    with caplog.at_level("WARNING"):
        assert await ask(app, "POST", JOIN, leave, ("content-length", "100")) == 400
    assert not [record for record in caplog.records if record.name.startswith("paceline")], caplog.text


@pytest.mark.parametrize(("first", "other"), [(JOIN, LOGIN), (LOGIN, JOIN)])
async def test_failing_at_one_door_locks_no_peer_out_of_the_other(connect: Connect, first: str, other: str) -> None:
    async with connect() as stranger:
        answers = [(await stranger.post(first, json=BODIES[first])).status_code for _ in range(11)]
        assert answers == [401] * 10 + [429]
        assert (await stranger.post(other, json=BODIES[other])).status_code == 401


@pytest.mark.parametrize("door", [JOIN, LOGIN])
async def test_a_page_of_another_site_cannot_use_up_the_attempts(connect: Connect, door: str) -> None:
    async with connect() as browser:
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answers = [await browser.post(door, json=BODIES[door], headers=headers) for _ in range(11)]
            assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, "csrf")}
        assert (await browser.post(door, json=BODIES[door])).status_code == 401


@pytest.mark.parametrize("door", [JOIN, LOGIN])
async def test_a_peer_over_its_limit_costs_no_database_session(
    connect: Connect, services: Services, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect() as stranger:
        for _ in range(10):
            await stranger.post(door, json=BODIES[door])

        def used(*_: object) -> NoReturn:
            raise AssertionError("a session was opened")

        monkeypatch.setattr(type(services.control), "write", used)
        monkeypatch.setattr(type(services.control), "read", used)
        answer = await stranger.post(door, json=BODIES[door])
        assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")


@pytest.mark.parametrize("name", ["n\n", "n/1", "-n", "x" * 64, "n\0"])
async def test_a_node_cannot_be_called_what_a_line_or_a_path_would_break_at(connect: Connect, name: str) -> None:
    async with connect() as stranger:
        answer = await stranger.post(JOIN, json={"token": "pj_x", "name": name})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
