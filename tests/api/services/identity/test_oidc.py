"""Single sign-on against a provider that speaks real HTTP: the whole way of a browser, and everything that must be refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr, ValidationError

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.services.identity.oidc import OidcProvider
from paceline.api.settings import Settings
from tests import factories, openid_provider
from tests.conftest import BASE_URL, Connect
from tests.openid_provider import CLIENT, SECRET, OpenIdProvider

START, CALLBACK = "/api/v1/auth/oidc/start", "/api/v1/auth/oidc/callback"


@pytest.fixture
def provider() -> Iterator[OpenIdProvider]:
    with openid_provider.serve() as found:
        yield found


@pytest.fixture
def settings(settings: Settings, provider: OpenIdProvider) -> Settings:
    """A coordinator that knows the provider."""
    known = {"oidc_issuer": provider.issuer, "oidc_client_id": CLIENT, "oidc_client_secret": SecretStr(SECRET), "oidc_label": "Example"}
    return settings.model_copy(update=known)


def give_roles(app: FastAPI, **settings: str) -> None:
    """Change settings of a running coordinator: how groups become roles."""
    services: Services = app.state.services
    app.state.services = replace(services, settings=services.settings.model_copy(update=settings))


async def to_callback(browser: httpx.AsyncClient, next: str = "/cluster") -> str:
    """Go to the provider and come back as far as the callback, whose address is returned."""
    begun = await browser.get(START, params={"next": next})
    assert begun.status_code == 303, begun.text
    async with httpx.AsyncClient() as elsewhere:
        sent_back = await elsewhere.get(begun.headers["location"])
    address = str(sent_back.headers["location"])
    assert address.startswith(f"{BASE_URL}/api/v1/auth/oidc/callback?")
    return address


async def arrival(browser: httpx.AsyncClient) -> str:
    """Sign in as a browser does; where it arrives."""
    answer = await browser.get(await to_callback(browser))
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


async def who(browser: httpx.AsyncClient) -> dict[str, Any]:
    me: dict[str, Any] = (await browser.get("/api/v1/auth/me")).json()
    return me


async def test_a_browser_signs_in_and_arrives_where_it_wanted_to(connect: Connect, client: httpx.AsyncClient) -> None:
    async with connect() as browser:
        assert (await browser.get("/api/v1/auth/ways")).json() == {"oidc": "Example"}
        assert await arrival(browser) == "/cluster"
        me = await who(browser)
        assert (me["name"], me["role"]) == ("ada@example.org", "viewer")
        (session,) = (await browser.get("/api/v1/sessions")).json()["items"]
        assert session["signed_in_by"] == "oidc"
        assert not any(name.endswith("_oidc") for name in browser.cookies)
    actions = [entry["action"] for entry in (await client.get("/api/v1/audit")).json()["items"]]
    assert "auth.signed_in" in actions


async def test_the_same_subject_is_the_same_user_whatever_the_name(connect: Connect, provider: OpenIdProvider) -> None:
    async with connect() as browser:
        await arrival(browser)
        first = await who(browser)
        provider.claims["email"] = "ada.lovelace@example.org"
        await arrival(browser)
        assert (await who(browser))["user_id"] == first["user_id"]


async def test_a_name_of_somebody_else_is_not_taken_over(connect: Connect, services: Services) -> None:
    async with services.write() as session:
        await factories.create_user(session, name="ada@example.org", role="admin")
    async with connect() as browser:
        assert await arrival(browser) == "/login?refused=already_exists"
        assert (await browser.get("/api/v1/auth/me")).status_code == 401


@pytest.mark.parametrize(
    ("groups", "role"),
    [(["ml"], "member"), (["ml", "ops"], "admin"), ("ops", "admin"), (["guests"], "viewer"), ([], None)],
)
async def test_groups_give_the_strongest_role(
    app: FastAPI, connect: Connect, provider: OpenIdProvider, groups: list[str] | str, role: str | None
) -> None:
    give_roles(app, oidc_admin_groups="ops", oidc_member_groups="ml, research", oidc_viewer_groups="guests", oidc_default_role="none")
    provider.claims["groups"] = groups
    async with connect() as browser:
        assert await arrival(browser) == ("/cluster" if role else "/login?refused=oidc_no_role")
        assert (await who(browser)).get("role") == role


async def test_a_role_follows_the_groups_and_a_disabled_user_stays_out(
    app: FastAPI, connect: Connect, provider: OpenIdProvider, client: httpx.AsyncClient
) -> None:
    give_roles(app, oidc_member_groups="ml")
    provider.claims["groups"] = ["ml"]
    async with connect() as browser:
        await arrival(browser)
        me = await who(browser)
        provider.claims["groups"] = []
        await arrival(browser)
        assert (me["role"], (await who(browser))["role"]) == ("member", "viewer")
        assert (await client.patch(f"/api/v1/users/{me['user_id']}", json={"disabled": True})).status_code == 200
        assert await arrival(browser) == "/login?refused=oidc_no_role"


async def test_keys_are_read_again_once_the_provider_has_replaced_them(connect: Connect, provider: OpenIdProvider) -> None:
    async with connect() as browser:
        await arrival(browser)
        await arrival(browser)
        assert provider.key_reads == 1
        provider.key = openid_provider.new_key()
        assert await arrival(browser) == "/cluster"
        assert provider.key_reads == 2


@pytest.mark.parametrize(
    "lies",
    [
        {"nonce": "of another attempt"},
        {"aud": "another client"},
        {"aud": [CLIENT, "another client"], "azp": "another client"},
        {"iss": "https://evil.example"},
        {"exp": 1_700_000_000},
        {"email": ""},
        {"email": "no\nname"},
    ],
    ids=lambda lies: next(iter(lies)),
)
async def test_an_id_token_that_is_not_for_this_attempt_is_refused(
    connect: Connect, provider: OpenIdProvider, lies: dict[str, Any]
) -> None:
    provider.lies = lies
    async with connect() as browser:
        assert await arrival(browser) == "/login?refused=oidc_refused"
        assert (await browser.get("/api/v1/auth/me")).status_code == 401


async def test_a_token_that_another_key_signed_is_refused(connect: Connect, provider: OpenIdProvider) -> None:
    provider.forger = openid_provider.new_key()
    async with connect() as browser:
        assert await arrival(browser) == "/login?refused=oidc_refused"


async def test_an_attempt_ends_in_the_browser_that_began_it(connect: Connect) -> None:
    """Otherwise a page could sign its visitor in as somebody else."""
    async with connect() as browser, connect() as other:
        address = await to_callback(browser)
        assert (await other.get(address)).headers["location"] == "/login?refused=oidc_refused"
        await to_callback(other)
        assert (await other.get(address)).headers["location"] == "/login?refused=oidc_refused"
        assert (await browser.get(address)).headers["location"] == "/cluster"


@pytest.mark.parametrize("change", [{"code": "made up"}, {"code": ""}, {"iss": "https://evil.example"}], ids=str)
async def test_an_answer_that_is_not_the_providers_is_refused(connect: Connect, change: dict[str, str]) -> None:
    async with connect() as browser:
        parts = urlsplit(await to_callback(browser))
        answer = await browser.get(parts.path, params=dict(parse_qsl(parts.query)) | change)
        assert answer.headers["location"] == "/login?refused=oidc_refused"


async def test_a_wrong_verifier_gets_no_token(connect: Connect, provider: OpenIdProvider) -> None:
    async with connect() as browser:
        address = await to_callback(browser)
        (asked,) = provider.codes.values()
        asked["code_challenge"] = "that of somebody else"
        assert (await browser.get(address)).headers["location"] == "/login?refused=oidc_refused"


@pytest.mark.parametrize("next", ["//evil.example", "/\\evil.example", "https://evil.example"])
async def test_nobody_is_led_to_another_site(connect: Connect, next: str) -> None:
    async with connect() as browser:
        answer = await browser.get(await to_callback(browser, next))
        assert answer.headers["location"] == "/jobs"


async def test_a_provider_that_is_away_is_said_by_the_login_page(app: FastAPI, connect: Connect) -> None:
    give_roles(app, oidc_issuer="http://127.0.0.1:9")
    async with connect() as browser:
        assert (await browser.get(START)).headers["location"] == "/login?refused=oidc_unavailable"


async def test_callbacks_that_this_browser_did_not_begin_lock_nobody_out(client: httpx.AsyncClient, connect: Connect) -> None:
    """Any page can have a browser ask for the callback, as for an image: that is no failure of whoever looks at the page."""
    async with connect() as browser:
        for number in range(12):
            assert (await browser.get(CALLBACK, params={"n": number, "state": "x", "code": "y"})).status_code == 303
        assert await arrival(browser) == "/cluster"
    assert (await client.get("/api/v1/audit", params={"action": "auth.sign_in_failed"})).json()["items"] == []


async def test_a_provider_that_is_away_is_no_failure_of_who_signs_in(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise ProblemError("oidc_unavailable", "it does not answer")

    async with connect() as browser:
        with monkeypatch.context() as patch:
            patch.setattr(OidcProvider, "identify", away)
            for _ in range(12):
                assert await arrival(browser) == "/login?refused=oidc_unavailable"
        assert await arrival(browser) == "/cluster"


async def test_failures_of_who_signs_in_have_a_limit(connect: Connect, provider: OpenIdProvider) -> None:
    async with connect() as browser:
        arrivals = []
        for _ in range(11):
            address = await to_callback(browser)
            arrivals.append((await browser.get(f"{address}&iss=https://evil.example")).headers["location"])
    assert arrivals == ["/login?refused=oidc_refused"] * 10 + ["/login?refused=rate_limited"]


async def test_without_a_provider_there_is_nothing_to_start(app: FastAPI, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    give_roles(app, oidc_issuer="")
    monkeypatch.setitem(sys.modules, OidcProvider.__module__, None)  # the package's extra `oidc` is not there
    async with connect() as browser:
        assert (await browser.get("/api/v1/auth/ways")).json() == {"oidc": None}
        for address in (START, CALLBACK):
            assert (await browser.get(address)).headers["location"] == "/login?refused=not_found"


@pytest.mark.parametrize(("issuer", "client"), [("http://login.example.org", CLIENT), ("https://login.example.org", "")])
def test_settings_that_cannot_work_are_refused_at_the_start(issuer: str, client: str) -> None:
    with pytest.raises(ValidationError, match="PACELINE_OIDC_ISSUER"):
        Settings(oidc_issuer=issuer, oidc_client_id=client)
