"""Uploads go past what other requests need, and are refused and answered as all others are."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from paceline.api.middleware.upload_shortcut import UploadShortcut
from paceline.cluster.protocol import UPLOAD_PATH
from paceline.db.models.nodes import NodeRow
from tests.conftest import Connect


@pytest.mark.parametrize(
    ("scope", "way"),
    [
        ({"type": "http", "path": UPLOAD_PATH, "method": "POST"}, "uploads"),
        ({"type": "http", "path": UPLOAD_PATH, "method": "GET"}, "others"),
        ({"type": "http", "path": UPLOAD_PATH + "/", "method": "POST"}, "others"),
        ({"type": "websocket", "path": UPLOAD_PATH}, "others"),
        ({"type": "lifespan"}, "others"),
    ],
)
async def test_only_uploads_take_the_shortcut(scope: dict[str, Any], way: str) -> None:
    taken: list[str] = []

    def named(name: str) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            taken.append(name)

        return app

    async def nothing(*_: Any) -> Any:
        raise AssertionError("nothing is read or sent here")

    await UploadShortcut(named("others"), named("uploads"))(scope, nothing, nothing)
    assert taken == [way]


async def test_a_refused_upload_is_the_same_problem_document_as_elsewhere(connect: Connect) -> None:
    async with connect("no-such-credential") as stranger:
        answer = await stranger.post(UPLOAD_PATH, content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (401, "invalid_credential")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_other_methods_of_its_path_are_refused_by_name(client: httpx.AsyncClient) -> None:
    answer = await client.get(UPLOAD_PATH)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_a_bug_in_an_upload_is_answered_without_its_stack(
    app: FastAPI, connect: Connect, node: tuple[NodeRow, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise ValueError("secret detail")

    async with connect(node[1]) as client:
        monkeypatch.setattr(app.state.upload_door, "accept", broken)
        answer = await client.post(UPLOAD_PATH, content=b'{"batches":[]}')
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret detail" not in answer.text
