"""Probes answer anybody, under any Host."""

from __future__ import annotations

import httpx

from tests.conftest import Connect


async def test_probes_answer_without_identity_and_by_address(connect: Connect) -> None:
    async with connect(peer="10.0.0.7") as client:
        for path in ("/healthz", "/readyz"):
            answer = await client.get(path, headers={"Host": "10.0.0.1:8000"})
            assert answer.status_code == 200, answer.text


async def test_an_admin_key_opens_the_door(client: httpx.AsyncClient) -> None:
    me = (await client.get("/api/v1/auth/me")).json()
    assert (me["name"], me["role"], me["csrf_token"]) == ("admin", "admin", None)
