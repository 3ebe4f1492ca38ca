"""Guests: who is let in without signing in, where MOCK_DB lets guests in at all."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.middleware.gate import Gate
from paceline.api.mock import people
from tests.conftest import Connect

ME, KEYS = "/api/v1/auth/me", "/api/v1/keys"
PAGE = {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}
ELSEWHERE = {"Origin": "https://example.org", "Sec-Fetch-Site": "cross-site"}


@pytest.fixture
async def guests(services: Services) -> None:
    await people.create(services)


@pytest.mark.usefixtures("guests")
async def test_a_guest_from_this_machine_is_an_admin_and_says_so(connect: Connect) -> None:
    async with connect() as nobody:
        me = (await nobody.get(ME)).json()
    assert (me["name"], me["role"], me["guest"]) == ("guest", "admin", True)


async def test_without_mock_db_there_is_no_guest(connect: Connect) -> None:
    async with connect() as nobody:
        assert (await nobody.get(ME)).status_code == 401


@pytest.mark.usefixtures("guests")
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "10.0.0.7"},
        {"Forwarded": "for=10.0.0.7"},
        {"Via": "1.1 proxy"},
        ELSEWHERE,
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Authorization": "Bearer pk_wrong"},
    ],
    ids=str,
)
async def test_a_proxy_another_site_or_a_wrong_key_makes_no_guest(connect: Connect, headers: dict[str, str]) -> None:
    async with connect() as nobody:
        assert (await nobody.get(ME, headers=headers)).status_code == 401


@pytest.mark.usefixtures("guests")
async def test_another_machine_is_no_guest_and_neither_is_another_name_of_this_one(app: FastAPI) -> None:
    """Both are answered, as with --host 0.0.0.0 and PACELINE_ALLOWED_HOSTS; they are not let in."""
    settings = app.state.settings.model_copy(update={"allowed_hosts": "rebound.example", "insecure_public": True})
    gate = next(each for each in app.user_middleware if each.cls is Gate)
    gate.kwargs["settings"] = settings
    for peer, host in (("192.0.2.7", "127.0.0.1:8000"), ("127.0.0.1", "rebound.example"), ("192.0.2.7", "rebound.example")):
        transport = httpx.ASGITransport(app=app, client=(peer, 50000))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as nobody:
            assert (await nobody.get(ME)).status_code == 401, (peer, host)


@pytest.mark.usefixtures("guests")
async def test_a_page_needs_the_token_that_only_our_own_page_can_read_and_curl_needs_none(connect: Connect) -> None:
    body = {"name": "mine"}
    async with connect() as nobody:
        token = (await nobody.get(ME)).json()["csrf_token"]
        assert (await nobody.post(KEYS, json=body, headers=PAGE)).json()["code"] == "csrf"
        assert (await nobody.post(KEYS, json=body, headers=ELSEWHERE | {"X-CSRF-Token": token})).status_code == 401
        assert (await nobody.post(KEYS, json=body, headers=PAGE | {"X-CSRF-Token": token})).status_code == 201
        assert (await nobody.post(KEYS, json={"name": "curl's"})).status_code == 201


@pytest.mark.usefixtures("guests")
async def test_the_cookie_of_an_earlier_coordinator_on_this_port_does_no_harm(connect: Connect) -> None:
    async with connect() as nobody:
        nobody.cookies.set("paceline_session_8000", "of-yesterday")
        assert (await nobody.get(ME)).json()["guest"] is True
        assert (await nobody.post("/api/v1/auth/logout")).status_code == 204
        assert (await nobody.get(ME)).json()["guest"] is True


@pytest.mark.usefixtures("guests")
async def test_a_guests_stream_stays_open(services: Services) -> None:
    """Open sockets look again whether what opened them still would."""
    guest = services.guest.caller
    assert guest is not None
    async with services.control.read() as session:
        assert await identity.still_valid(session, guest, services.now())
        assert not await identity.still_valid(session, replace(guest, credential="other"), services.now())
