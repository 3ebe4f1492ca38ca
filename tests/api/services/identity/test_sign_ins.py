"""Signing in with a key, the sessions of browsers, and the audit of who did what, from where."""

from __future__ import annotations

from datetime import timedelta
from time import time
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.core.origin import device_of
from paceline.api.settings import Settings
from paceline.credentials import hash_secret
from tests import factories
from tests.conftest import Connect

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


async def signed_in(client: httpx.AsyncClient, token: str) -> dict[str, Any]:
    """Sign a browser in, which sends its CSRF token from then on. Returns who it is."""
    client.headers.update({"User-Agent": FIREFOX, "Origin": "http://127.0.0.1:8000"})
    answer = await client.post("/api/v1/auth/login", json={"token": token})
    assert answer.status_code == 200, answer.text
    me: dict[str, Any] = answer.json()
    client.headers["X-CSRF-Token"] = me["csrf_token"]
    return me


async def new_key(client: httpx.AsyncClient, **body: object) -> dict[str, Any]:
    answer = await client.post("/api/v1/keys", json={"name": "page", "role": "member"} | body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def listed(client: httpx.AsyncClient, path: str, **parameters: str | int) -> list[dict[str, Any]]:
    answer = await client.get(f"/api/v1/{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def test_a_session_that_a_key_opened_may_do_what_the_key_may(client: httpx.AsyncClient, connect: Connect) -> None:
    made = await new_key(client, expires_in_days=1)
    async with connect() as browser:
        assert (await signed_in(browser, made["key"]))["role"] == "member"
        assert (await browser.get("/api/v1/users")).status_code == 403
        (session,) = await listed(browser, "sessions")
        assert (session["signed_in_by"], session["key_prefix"]) == ("api_key", made["prefix"])
        assert session["expires_at"] == made["expires_at"]


async def test_a_session_is_over_when_its_key_is_revoked(client: httpx.AsyncClient, connect: Connect) -> None:
    made = await new_key(client)
    async with connect() as browser:
        await signed_in(browser, made["key"])
        child = await new_key(browser, name="child")
        assert child["parent_id"] == made["id"]
        await client.delete(f"/api/v1/keys/{made['id']}")
        assert (await browser.get("/api/v1/auth/me")).status_code == 401
    async with connect(child["key"]) as holder:
        assert (await holder.get("/api/v1/auth/me")).status_code == 401
    assert await listed(client, "sessions") == []


async def test_a_wrong_key_is_refused_in_plain_words(connect: Connect) -> None:
    async with connect() as browser:
        refused = await browser.post("/api/v1/auth/login", json={"token": "pk_guess"})
        used = await browser.post("/api/v1/auth/login", json={"token": "guess"})
    assert (refused.status_code, refused.json()["detail"]) == (401, "this API key is unknown, expired or revoked")
    assert (used.status_code, used.json()["detail"]) == (401, "this link has expired or was already used")


async def test_a_session_says_where_it_is_and_can_be_ended(client: httpx.AsyncClient, connect: Connect) -> None:
    vera = (await client.post("/api/v1/users", json={"name": "vera", "role": "viewer"})).json()
    link = (await client.post(f"/api/v1/users/{vera['id']}/login-link")).json()["url"].partition("token=")[2]
    async with connect(peer="127.0.0.7") as browser:
        await signed_in(browser, link)
        (own,) = await listed(browser, "sessions")
        assert (own["device"], own["address"], own["signed_in_by"], own["current"]) == ("Firefox on Linux", "127.0.0.7", "login_link", True)
        (seen,) = await listed(client, "sessions")
        assert (seen["user_name"], seen["current"], seen["id"]) == ("vera", False, own["id"])
        assert (await client.delete(f"/api/v1/sessions/{own['id']}")).status_code == 204
        assert (await browser.get("/api/v1/auth/me")).status_code == 401
    assert (await client.delete(f"/api/v1/sessions/{own['id']}")).status_code == 404


async def test_a_session_ends_after_as_many_days_as_the_settings_say(
    client: httpx.AsyncClient, connect: Connect, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_SESSION_DAYS", "1")
    begun, kept = services.now(), services.settings
    object.__setattr__(services, "settings", Settings(data=kept.data, database_url=kept.database_url, redis_url=None))
    key = (await new_key(client))["key"]
    async with connect() as browser:
        await signed_in(browser, key)
        (cookie,) = browser.cookies.jar
        assert cookie.expires is not None
        assert cookie.expires - time() == pytest.approx(24 * 3600, abs=600)
        for hours, status in ((23, 200), (25, 401)):
            object.__setattr__(services, "now", lambda hours=hours: begun + timedelta(hours=hours))
            assert (await browser.get("/api/v1/auth/me")).status_code == status, hours


async def test_nobody_but_an_admin_sees_or_ends_the_sessions_of_others(
    client: httpx.AsyncClient, connect: Connect, services: Services
) -> None:
    async with services.write() as session:
        _, key = await factories.create_user(session, name="bob", role="member")
    made = await new_key(client)
    async with connect() as browser, connect(key) as bob:
        await signed_in(browser, made["key"])
        (session_of_admin,) = await listed(client, "sessions")
        assert await listed(bob, "sessions") == []
        assert (await bob.delete(f"/api/v1/sessions/{session_of_admin['id']}")).status_code == 404
        assert (await bob.delete(f"/api/v1/sessions/{session_of_admin['id'][:1]}")).status_code == 404
        assert (await bob.get("/api/v1/audit")).status_code == 403
        assert (await browser.get("/api/v1/auth/me")).status_code == 200


async def test_sessions_page_by_cursor(client: httpx.AsyncClient, connect: Connect) -> None:
    key = (await new_key(client))["key"]
    for _ in range(3):
        async with connect() as browser:
            await signed_in(browser, key)
    first = (await client.get("/api/v1/sessions", params={"limit": 2})).json()
    rest = (await client.get("/api/v1/sessions", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert len({session["id"] for session in first["items"] + rest["items"]}) == 3
    assert rest["next_cursor"] is None


async def test_the_last_use_of_a_session_is_when_its_user_was_last_active(
    client: httpx.AsyncClient, connect: Connect, services: Services
) -> None:
    vera = (await client.post("/api/v1/users", json={"name": "vera", "role": "viewer"})).json()
    assert vera["last_active_at"] is None
    url = (await client.post(f"/api/v1/users/{vera['id']}/login-link")).json()["url"]
    async with connect() as browser:
        await signed_in(browser, url.partition("token=")[2])
        caller = await _caller(services, browser)
        later = services.now() + timedelta(minutes=2)
        services.last_uses.note(caller, later)
        services.last_uses.note(caller, services.now())  # within a minute of the last one that is written
        await services.last_uses.flush()
        (own,) = await listed(browser, "sessions")
    (user,) = await listed(client, "users", name="vera")
    assert own["last_used_at"] == user["last_active_at"] == later.isoformat().replace("+00:00", "Z")


async def _caller(services: Services, browser: httpx.AsyncClient) -> identity.Caller:
    (secret,) = browser.cookies.values()
    async with services.control.read() as session:
        caller = await identity.caller_of_session(session, hash_secret(secret), services.now())
    assert caller is not None
    return caller


async def test_the_audit_says_who_did_what_from_where(client: httpx.AsyncClient, connect: Connect) -> None:
    made = await new_key(client, role="admin")
    async with connect(peer="127.0.0.9") as browser:
        await signed_in(browser, made["key"])
        assert (await browser.post("/api/v1/users", json={"name": "vera", "role": "viewer"})).status_code == 201
        assert (await browser.post("/api/v1/auth/logout")).status_code == 204
    entries = [(each["action"], each["address"], each["via"]) for each in await listed(client, "audit")]
    by_browser = ("127.0.0.9", "Firefox on Linux")
    assert entries[:3] == [("auth.signed_out", *by_browser), ("user.created", *by_browser), ("auth.signed_in", *by_browser)]
    assert entries[3][:2] == ("key.created", "127.0.0.1")
    assert entries[3][2].startswith("API key pk_")
    assert "127.0.0.9" not in (await client.get("/api/v1/events")).text


async def test_the_audit_is_filtered_and_paged(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    async with services.write() as session:
        _, key = await factories.create_user(session, name="bob", role="member")
    await new_key(client)
    async with connect(key) as bob:
        mine = await new_key(bob)
        assert (await bob.delete(f"/api/v1/keys/{mine['id']}")).status_code == 204
    assert [each["action"] for each in await listed(client, "audit", user="bob")] == ["key.revoked", "key.created"]
    assert [each["user_name"] for each in await listed(client, "audit", action="key.created")] == ["bob", "admin"]
    assert len(await listed(client, "audit", action="key")) == 3
    assert await listed(client, "audit", action="ke") == []
    first = (await client.get("/api/v1/audit", params={"action": "key", "limit": 2})).json()
    rest = (await client.get("/api/v1/audit", params={"action": "key", "cursor": first["next_cursor"]})).json()
    assert [each["user_name"] for each in rest["items"]] == ["admin"]


async def test_keys_name_their_users(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_user(session, name="bob", role="member")
    assert {key["user_name"] for key in await listed(client, "keys")} == {"admin", "bob"}


@pytest.mark.parametrize(
    ("agent", "device"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile/15E148 Safari/604.1", "Safari on iPhone"),
        ("curl/8.5.0", None),
    ],
)  # fmt: skip
def test_a_device_is_told_in_two_words(agent: str, device: str | None) -> None:
    assert device_of(HTTPConnection({"type": "http", "headers": [(b"user-agent", agent.encode())]})) == device
