"""Who gets in, what they may do, and how fast they are out again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.core.origin import PLAIN_COOKIE, SECURE_COOKIE
from paceline.api.schemas.identity import UserUpdate
from paceline.api.services.identity import accounts
from paceline.api.services.identity.failed_sign_ins import MOST_EVENTS, UNKNOWN, FailedAttempt, FailedSignIns, TriedUser
from paceline.api.settings import Settings
from paceline.credentials import hash_secret
from paceline.db.models.identity import ApiKeyRow, SessionRow
from tests import factories
from tests.conftest import Connect

#: The only paths that answer anybody: probes, the way in, the page that shows it, and the documentation.
OPEN = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("POST", "/api/v1/auth/login"),
    ("GET", "/api/v1/auth/ways"),
    ("GET", "/api/v1/auth/oidc/start"),
    ("GET", "/api/v1/auth/oidc/callback"),
    ("GET", "/api/v1/authority.pem"),  # public by nature: what an agent verifies before it joins
    ("POST", "/api/v1/agents/join"),
    ("GET", "/docs"),
    ("GET", "/docs/"),
    ("GET", "/docs/{path:path}"),
    ("GET", "/{path:path}"),
}
ORIGIN = "http://127.0.0.1:8000"


def http_routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Every (method, path) the app answers, found in the app itself, so that a new route cannot be forgotten."""

    def walk(routes: list[BaseRoute], prefix: str) -> Iterator[tuple[str, str]]:
        for route in routes:
            inner = getattr(route, "original_router", None)
            if inner is not None:
                yield from walk(inner.routes, prefix + route.include_context.prefix)  # type: ignore[attr-defined]
            elif isinstance(route, APIRoute):
                yield from ((method, prefix + route.path) for method in route.methods or ())

    yield from walk(app.routes, "")


async def test_nothing_else_answers_without_identity(app: FastAPI, connect: Connect) -> None:
    found = set(http_routes(app))
    assert len(found) > 20
    assert found >= OPEN
    async with connect() as nobody:
        for method, path in found - OPEN:
            answer = await nobody.request(method, path.replace("{", "").replace("}", ""))
            assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json"), (method, path, answer.text)


async def test_hidden_documents_are_hidden(connect: Connect) -> None:
    async with connect() as nobody:
        for path in ("/openapi.json", "/docs", "/redoc"):
            assert '"paths"' not in (await nobody.get(path)).text


@pytest.fixture
async def link(services: Services) -> str:
    async with services.write() as session:
        user, _ = await factories.create_user(session, name="ada", role="member")
        token, _ = await identity.create_login_link(session, user, services.now())
    return token


@pytest.fixture
async def browser(connect: Connect, link: str) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """A signed-in browser and its CSRF token."""
    async with connect() as client:
        client.headers.update({"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"})
        answer = await client.post("/api/v1/auth/login", json={"token": link})
        assert answer.status_code == 200, answer.text
        yield client, answer.json()["csrf_token"]


async def test_a_login_link_works_once(connect: Connect, link: str) -> None:
    async with connect() as client:
        first = await client.post("/api/v1/auth/login", json={"token": link})
        cookie = first.headers["set-cookie"].lower()
        assert cookie.startswith(f"{PLAIN_COOKIE}_8000=")
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        second = await client.post("/api/v1/auth/login", json={"token": link})
        assert (second.status_code, second.json()["code"]) == (401, "invalid_login_link")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_two_stacks_of_one_machine_do_not_sign_each_other_out(connect: Connect, link: str, scheme: str) -> None:
    """Browsers send the cookies of 127.0.0.1 to all its ports, those over TLS too."""
    async with connect() as client:
        assert (await client.post(f"{scheme}://127.0.0.1:8000/api/v1/auth/login", json={"token": link})).status_code == 200
        assert (await client.get(f"{scheme}://127.0.0.1:8000/api/v1/auth/me")).status_code == 200
        assert (await client.get(f"{scheme}://127.0.0.1:8001/api/v1/auth/me")).status_code == 401


async def test_two_racers_with_one_link_make_one_session(connect: Connect, link: str) -> None:
    async with connect() as client:
        answers = await asyncio.gather(*(client.post("/api/v1/auth/login", json={"token": link}) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 401, 401, 401, 401]


async def test_an_expired_link_is_refused(connect: Connect, services: Services) -> None:
    async with services.write() as session:
        user, _ = await factories.create_user(session)
        token, _ = await identity.create_login_link(session, user, services.now() - timedelta(minutes=16))
    async with connect() as client:
        assert (await client.post("/api/v1/auth/login", json={"token": token})).status_code == 401


@pytest.mark.parametrize(("address", "ending"), [("https://127.0.0.1:8000", "_8000"), ("https://127.0.0.1", "")], ids=["a port", "none"])
async def test_over_https_the_cookie_is_host_bound_and_secure(connect: Connect, link: str, address: str, ending: str) -> None:
    async with connect() as client:
        answer = await client.post(f"{address}/api/v1/auth/login", json={"token": link})
    assert answer.headers["set-cookie"].startswith(f"{SECURE_COOKIE}{ending}=")
    assert "Secure" in answer.headers["set-cookie"]


async def test_guessing_links_is_slowed_down(connect: Connect) -> None:
    async with connect() as client:
        answers = [await client.post("/api/v1/auth/login", json={"token": f"guess{n}"}) for n in range(11)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert answers[-1].json()["code"] == "rate_limited"
    assert int(answers[-1].headers["retry-after"]) > 0


async def failures(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/api/v1/audit", params={"action": "auth.sign_in_failed"})).json()["items"]
    return found


async def test_failed_sign_ins_are_in_the_audit_with_who_was_tried_and_without_what(
    client: httpx.AsyncClient, connect: Connect, services: Services, link: str, admin_key: str
) -> None:
    now = services.now()
    object.__setattr__(services, "now", lambda: now)  # failures are counted by the hour, and this one might end meanwhile
    async with connect() as nobody:
        assert (await nobody.post("/api/v1/auth/login", json={"token": link})).status_code == 200
        for token in (link, "guess-1", "guess-2", "pk_of_nobody", link):
            assert (await nobody.post("/api/v1/auth/login", json={"token": token})).status_code == 401
    found = await failures(client)
    assert [(each["user_name"], each["message"].partition(":")[0]) for each in found] == [
        ("unknown", "a sign-in as unknown by API key failed"),
        ("unknown", f"a sign-in as unknown by login link failed, 2 times since {now:%H}"),
        ("ada", f"a sign-in as ada by login link failed, 2 times since {now:%H}"),
    ]
    assert all(each["address"] for each in found)
    told = str(found)
    assert not any(secret in told for secret in (link, "guess-1", "guess-2", "pk_of_nobody"))
    assert [
        each["user_name"] for each in (await client.get("/api/v1/audit", params={"user": "ada", "action": "auth"})).json()["items"]
    ] == ["ada"] * 2


async def test_a_flood_of_failed_sign_ins_is_counted_not_listed(client: httpx.AsyncClient, services: Services) -> None:
    failed, now = FailedSignIns(services), services.now()
    for number in range(MOST_EVENTS + 30):
        attempt = FailedAttempt(TriedUser("", UNKNOWN, "login link"), f"10.0.0.{number}", None, "it is unknown")
        await failed.note(attempt, now)
    await asyncio.gather(
        *(failed.note(FailedAttempt(TriedUser("", UNKNOWN, "login link"), "10.0.0.1", None, "no"), now) for _ in range(20))
    )
    await failed.note(FailedAttempt(TriedUser("", UNKNOWN, "login link"), "10.0.0.1", None, "no"), now + timedelta(hours=1))
    found = (await client.get("/api/v1/audit", params={"action": "auth.sign_in_failed", "limit": 200})).json()["items"]
    assert len(found) == MOST_EVENTS + 2
    counted = [each["message"] for each in found if "times since" in each["message"]]
    assert [message.partition(" times")[0].rpartition(" ")[2] for message in counted] == ["30", "21"]


async def test_a_session_reads_and_writes_with_its_csrf_token(browser: tuple[httpx.AsyncClient, str]) -> None:
    client, csrf = browser
    assert (await client.get("/api/v1/auth/me")).json()["csrf_token"] == csrf
    made = await client.post("/api/v1/keys", json={"name": "laptop"}, headers={"X-CSRF-Token": csrf})
    assert made.status_code == 201, made.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-CSRF-Token": "wrong"},
        {"X-CSRF-Token": "\xe9"},
        {"X-CSRF-Token": "right", "Origin": "http://evil.example"},
        {"X-CSRF-Token": "right", "Origin": "null"},
        {"X-CSRF-Token": "right", "Sec-Fetch-Site": "cross-site"},
    ],
    ids=["no token", "wrong token", "token beyond ASCII", "another origin", "a page without an origin", "another site"],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/keys"), ("DELETE", "/api/v1/keys/x"), ("POST", "/api/v1/auth/logout")])
async def test_unsafe_requests_with_a_cookie_prove_their_origin(
    browser: tuple[httpx.AsyncClient, str], headers: dict[str, str], method: str, path: str
) -> None:
    client, csrf = browser
    sent = [(name.encode(), (csrf if value == "right" else value).encode("latin-1")) for name, value in headers.items()]
    answer = await client.request(method, path, headers=sent)
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf")


async def test_logging_out_ends_the_session(browser: tuple[httpx.AsyncClient, str], connect: Connect) -> None:
    client, csrf = browser
    kept = dict(client.cookies)
    assert (await client.post("/api/v1/auth/logout", headers={"X-CSRF-Token": csrf})).status_code == 204
    async with connect() as again:
        again.cookies.update(kept)
        assert (await again.get("/api/v1/auth/me")).status_code == 401


async def test_an_expired_session_is_over(browser: tuple[httpx.AsyncClient, str], services: Services) -> None:
    client, _ = browser
    digest = hash_secret(client.cookies[f"{PLAIN_COOKIE}_8000"])
    async with services.write() as session:
        (await session.get_one(SessionRow, digest)).expires_at = services.now()
    assert (await client.get("/api/v1/auth/me")).status_code == 401


async def test_a_revoked_key_is_refused_at_once(client: httpx.AsyncClient, connect: Connect) -> None:
    made = (await client.post("/api/v1/keys", json={"name": "ci", "role": "viewer"})).json()
    async with connect(made["key"]) as holder:
        assert (await holder.get("/api/v1/auth/me")).json()["role"] == "viewer"
        assert (await client.delete(f"/api/v1/keys/{made['id']}")).status_code == 204
        assert (await client.delete(f"/api/v1/keys/{made['id']}")).status_code == 204
        refused = await holder.get("/api/v1/auth/me")
    assert (refused.status_code, refused.json()["code"]) == (401, "invalid_credential")
    assert made["key"] not in (await client.get("/api/v1/keys")).text


async def test_a_name_is_of_one_key_of_a_user_that_works(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    body = {"name": "ci", "role": "viewer"}
    made = (await client.post("/api/v1/keys", json=body)).json()
    again = await client.post("/api/v1/keys", json=body)
    assert (again.status_code, again.json()["code"]) == (409, "already_exists")
    assert f"'ci' already ({made['prefix']}...); choose another name, or revoke it first" in again.json()["detail"]
    async with services.write() as session:
        _, other = await factories.create_user(session, name="vera", role="viewer")
    async with connect(other) as vera:
        assert (await vera.post("/api/v1/keys", json=body)).status_code == 201, "names are of one user"
    assert (await client.delete(f"/api/v1/keys/{made['id']}")).status_code == 204
    newer = (await client.post("/api/v1/keys", json=body | {"expires_in_days": 1})).json()
    async with services.write() as session:
        (await session.get_one(ApiKeyRow, newer["id"])).expires_at = services.now()
    assert (await client.post("/api/v1/keys", json=body)).status_code == 201, "one that has expired no longer counts"


async def test_the_last_use_of_a_key_is_kept(client: httpx.AsyncClient, services: Services) -> None:
    await client.get("/api/v1/auth/me")
    await services.last_uses.flush()
    (key,) = (await client.get("/api/v1/keys")).json()["items"]
    assert key["last_used_at"] is not None


async def test_a_key_never_does_more_than_its_user(connect: Connect, services: Services, client: httpx.AsyncClient) -> None:
    async with services.write() as session:
        user, key = await factories.create_user(session, name="bob", role="member")
    async with connect(key) as bob:
        refused = await bob.post("/api/v1/keys", json={"name": "more", "role": "admin"})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (await client.patch(f"/api/v1/users/{user.id}", json={"role": "viewer"})).json()["role"] == "viewer"
        assert (await bob.get("/api/v1/auth/me")).json()["role"] == "viewer"
        assert (await client.patch(f"/api/v1/users/{user.id}", json={"disabled": True})).status_code == 200
        assert (await bob.get("/api/v1/auth/me")).status_code == 401


async def test_users_are_the_admins_to_manage(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    async with services.write() as session:
        _, key = await factories.create_user(session, name="bob", role="member")
    async with connect(key) as bob:
        for answer in (await bob.get("/api/v1/users"), await bob.post("/api/v1/users", json={"name": "eve"})):
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        mine = (await bob.get("/api/v1/keys")).json()["items"]
    assert len(mine) == 1
    assert len((await client.get("/api/v1/keys")).json()["items"]) == 2
    taken = await client.post("/api/v1/users", json={"name": "bob"})
    assert (taken.status_code, taken.json()["code"]) == (409, "already_exists")


async def test_the_last_admin_stays(client: httpx.AsyncClient) -> None:
    me = (await client.get("/api/v1/auth/me")).json()
    for change in ({"role": "member"}, {"disabled": True}):
        answer = await client.patch(f"/api/v1/users/{me['user_id']}", json=change)
        assert (answer.status_code, answer.json()["code"]) == (409, "last_admin")
    assert (await client.get("/api/v1/users")).status_code == 200


async def test_two_admins_who_demote_each_other_at_once_leave_one(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    async with services.write() as session:
        bob, key = await factories.create_user(session, name="bob")
    me = (await client.get("/api/v1/auth/me")).json()
    async with connect(key) as other:
        async with services.write() as session:
            admin = identity.Caller(user_id=me["user_id"], name="admin", role="admin", kind="key", credential="")
            await accounts.update_user(session, admin, bob.id, UserUpdate(role="viewer"), services.now())
            back = asyncio.create_task(other.patch(f"/api/v1/users/{me['user_id']}", json={"role": "viewer"}))
            await asyncio.wait({back}, timeout=0.5)  # it waits for this transaction
        answer = await back
    assert answer.json()["code"] in ("last_admin", "forbidden"), "whichever looks first: the last admin stays, or who is no admin any more"
    assert (await client.get("/api/v1/auth/me")).json()["role"] == "admin"


async def test_an_admins_link_signs_somebody_else_in(client: httpx.AsyncClient, connect: Connect) -> None:
    made = (await client.post("/api/v1/users", json={"name": "eve", "role": "viewer"})).json()
    url = (await client.post(f"/api/v1/users/{made['id']}/login-link")).json()["url"]
    assert url.startswith(f"{ORIGIN}/login?token=")
    async with connect() as eve:
        answer = await eve.post("/api/v1/auth/login", json={"token": url.partition("token=")[2]})
    assert answer.json()["name"] == "eve"


async def test_users_page_by_cursor(client: httpx.AsyncClient) -> None:
    for n in range(5):
        assert (await client.post("/api/v1/users", json={"name": f"user{n}"})).status_code == 201
    names, cursor = [], None
    while True:
        page = (await client.get("/api/v1/users", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))).json()
        names += [user["name"] for user in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert sorted(names) == ["admin", *(f"user{n}" for n in range(5))]


@pytest.mark.parametrize("cursor", ["x", "e30", "WzFd", "é"])
async def test_a_foreign_cursor_is_a_problem(client: httpx.AsyncClient, cursor: str) -> None:
    answer = await client.get("/api/v1/users", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")


async def test_an_unknown_host_is_refused_with_the_way_to_allow_it(connect: Connect) -> None:
    async with connect() as client:
        answer = await client.get("/api/v1/auth/me", headers={"Host": "Rebound.example:8000"})
    assert (answer.status_code, answer.json()["code"]) == (403, "host_not_allowed")
    assert "PACELINE_ALLOWED_HOSTS=rebound.example" in answer.json()["detail"]


async def test_plain_http_from_another_machine_is_refused(connect: Connect, admin_key: str) -> None:
    async with connect(admin_key, peer="192.0.2.1") as client:
        assert (await client.get("/api/v1/auth/me")).json()["code"] == "insecure_transport"
        assert (await client.get("https://127.0.0.1:8000/api/v1/auth/me")).status_code == 200


def test_allowed_hosts_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_ALLOWED_HOSTS", "Train.example, 10.0.0.1")
    monkeypatch.setenv("DATABASE_URL", "postgresql://x/y")
    settings: Any = Settings()
    assert {"train.example", "10.0.0.1", "localhost"} <= settings.hosts
    assert settings.database_url == "postgresql://x/y"


async def made_with(connect: Connect, key: str, **body: object) -> Any:
    async with connect(key) as holder:
        answer = await holder.post("/api/v1/keys", json={"name": "child", "role": "viewer"} | body)
    return answer.json() | {"status_code": answer.status_code}


async def test_a_key_never_outlives_the_key_that_made_it(client: httpx.AsyncClient, connect: Connect) -> None:
    parent = (await client.post("/api/v1/keys", json={"name": "a day", "expires_in_days": 1})).json()
    for wish in ({}, {"name": "other", "expires_in_days": None}):
        child = await made_with(connect, parent["key"], **wish)
        assert (child["expires_at"], child["parent_id"]) == (parent["expires_at"], parent["id"])
    refused = await made_with(connect, parent["key"], name="third", expires_in_days=30)
    assert (refused["status_code"], refused["code"]) == (403, "forbidden")
    assert "expires_in_days=30 is later than the key that you use" in refused["detail"]


async def test_what_a_key_made_is_revoked_with_it(client: httpx.AsyncClient, connect: Connect) -> None:
    parent = (await client.post("/api/v1/keys", json={"name": "leaked"})).json()
    child = await made_with(connect, parent["key"])
    grandchild = await made_with(connect, child["key"], name="grandchild")
    assert (await client.delete(f"/api/v1/keys/{parent['id']}")).status_code == 204
    for key in (parent, child, grandchild):
        async with connect(key["key"]) as holder:
            assert (await holder.get("/api/v1/auth/me")).status_code == 401
    assert (await client.get("/api/v1/auth/me")).status_code == 200  # the key that made the parent
    revoked = [event for event in (await client.get("/api/v1/events")).json()["items"] if event["type"] == "key.revoked"]
    assert {event["data"]["id"] for event in revoked} == {parent["id"], child["id"], grandchild["id"]}
    assert {event["actor"]["name"] for event in revoked} == {"admin"}
