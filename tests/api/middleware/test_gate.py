"""Bodies: whose are read, how much of them, and for how long."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from paceline.api.middleware import gate
from paceline.api.middleware.gate import BodyLimit
from tests import factories
from tests.api.test_identity import OPEN, http_routes
from tests.loop_watchdog import watched

#: What is told here does not go by the database.
pytestmark = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)

PLAN = "/api/v1/training/plan"


async def unread() -> Message:
    raise AssertionError("the body was read")


async def ask(app: FastAPI, method: str, path: str, receive: Any, *headers: tuple[str, str]) -> int:
    """The status of one request, whose body comes from `receive`."""
    return (await answer_of(app, method, path, receive, *headers))[0]


async def answer_of(app: FastAPI, method: str, path: str, receive: Any, *headers: tuple[str, str]) -> tuple[int, bytes]:
    """The status of one request, whose body comes from `receive`, and what it is answered."""
    answers: list[Message] = []

    async def send(message: Message) -> None:
        answers.append(message)

    sent = {"host": "127.0.0.1:8000", "content-type": "application/yaml", **dict(headers)}
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http"}
    scope |= {"headers": [(name.encode(), value.encode()) for name, value in sent.items()], "client": ("127.0.0.1", 5)}
    await app({**scope, "http_version": "1.1", "server": ("127.0.0.1", 8000), "root_path": ""}, receive, send)
    return answers[0]["status"], b"".join(answer["body"] for answer in answers[1:])


@pytest.mark.parametrize("header", [("content-length", "100"), ("transfer-encoding", "chunked")], ids=["length", "chunked"])
async def test_no_body_is_read_before_its_sender_is_known(app: FastAPI, header: tuple[str, str]) -> None:
    for method, path in sorted(set(http_routes(app)) - OPEN):
        assert await ask(app, method, path.replace("{", "").replace("}", ""), unread, header) == 401, (method, path)


@pytest.mark.parametrize("key", ["", "Bearer pk_wrong"], ids=["nobody", "wrong key"])
async def test_an_alias_bomb_of_a_stranger_is_not_even_parsed(app: FastAPI, key: str) -> None:
    headers = [("content-length", "360"), *([("authorization", key)] if key else [])]
    with watched() as watch:
        assert await ask(app, "POST", PLAN, unread, *headers) == 401
    watch.assert_free()


async def test_a_body_that_says_itself_that_it_is_too_long_is_not_read(app: FastAPI, admin_key: str) -> None:
    identity = ("authorization", f"Bearer {admin_key}")
    assert await ask(app, "POST", PLAN, unread, identity, ("content-length", str((64 << 10) + 1))) == 413
    assert await ask(app, "POST", "/api/v1/auth/login", unread, ("content-length", "4097")) == 413


@pytest.mark.parametrize("path", [PLAN, "/api/v1/agents/join", "/api/v1/auth/login"])
async def test_a_body_that_never_comes_is_waited_for_so_long_and_no_longer(
    app: FastAPI, admin_key: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for name in ("ORDINARY", "DOOR"):
        monkeypatch.setattr(gate, name, BodyLimit(1000, seconds=0.2))
    pieces = iter(b'{"name":')

    async def trickle() -> Message:
        piece = next(pieces, None)
        if piece is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": bytes([piece or 0]), "more_body": True}

    headers = ("authorization", f"Bearer {admin_key}"), ("content-length", "100")
    status, body = await asyncio.wait_for(answer_of(app, "POST", path, trickle, *headers), 5)
    assert (status, json.loads(body)["code"]) == (408, "body_too_slow")


async def test_the_longest_yaml_does_not_keep_the_event_loop(client: httpx.AsyncClient) -> None:
    """Parsing it took the event loop seconds."""
    text = "".join(f"k{n}: [1, 2, {{a: b}}]\n" for n in range(2600))
    await client.post(PLAN, json=factories.job_spec().model_dump(mode="json"))
    with watched() as watch:
        answer = await client.post(PLAN, content=text, headers={"Content-Type": "application/yaml"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec")
    assert "there are 2600 fields here" in answer.json()["detail"]
    watch.assert_free()


async def test_a_hostile_yaml_body_is_a_clear_refusal(client: httpx.AsyncClient) -> None:
    for text, says in (("a: &a [*a]", "anchors and aliases are not read here"), ("[" * 30_000, "nested deeper than 32 levels")):
        answer = await client.post(PLAN, content=text, headers={"Content-Type": "application/yaml"})
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
        assert says in answer.json()["detail"]


async def test_a_body_with_many_faults_names_each_with_its_field_and_line(client: httpx.AsyncClient) -> None:
    text = "name: Bad Name\nmodel: {kind: mlp, hiden: [16]}\ndata: {kind: digits}\nlabels: {a: b, a: c}\ntraining: {steps: many}\n"
    for path in (PLAN, "/api/v1/training/jobs"):
        answer = await client.post(path, content=text, headers={"Content-Type": "application/yaml"})
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
        found = [(each["pointer"], each["line"]) for each in answer.json()["errors"]]
        assert found == [
            ("/labels", 4), ("/name", 1), ("/model/hiden", 2), ("/training/steps", 5),
        ]  # fmt: skip


async def test_a_json_body_with_a_key_twice_is_refused_with_the_key(client: httpx.AsyncClient) -> None:
    for method, path in (("POST", PLAN), ("PATCH", "/api/v1/training/jobs/01JD0000000000000000000000")):
        headers = {"Content-Type": "application/json"}
        answer = await client.request(method, path, content=b'{"labels": {"a": "1", "a": "2"}}', headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
        assert "the key 'a' on line 1 is there already" in answer.json()["detail"]
