"""Signing in by an OpenID provider: two addresses that a browser is led through. What goes wrong is said by the login page."""

from __future__ import annotations

import importlib
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse

from paceline.api.core.context import Services
from paceline.api.core.identity import SessionOpening, open_session
from paceline.api.core.origin import address_of, cookie_name, device_of, is_secure, set_session_cookie
from paceline.api.deps import ServicesDep
from paceline.api.errors import ProblemError, not_found
from paceline.api.middleware.rate_limit import peer_of
from paceline.api.schemas.identity import SignInWays
from paceline.api.services.identity import accounts, provider_users
from paceline.api.services.identity.failed_sign_ins import UNKNOWN, FailedAttempt, TriedUser

if TYPE_CHECKING:
    from paceline.api.services.identity.oidc import OidcProvider, ProviderIdentity

router = APIRouter(prefix="/auth", tags=["auth"])
logger = logging.getLogger(__name__)
ATTEMPT_SECONDS = 600
#: Problems that are about who signs in, not about the provider or too many attempts.
_FAILURES = frozenset({"oidc_refused", "oidc_no_role", "forbidden", "already_exists"})
_NO_PROVIDER = not_found("provider", "oidc")
CALLBACK = "/api/v1/auth/oidc/callback"


@router.get("/ways")
async def list_ways(services: ServicesDep) -> SignInWays:
    """List the ways in that the login page offers beside links and keys."""
    return SignInWays(oidc=services.settings.oidc_label if services.settings.oidc_issuer else None)


@router.get("/oidc/start", status_code=303)
async def start_oidc(
    request: Request, services: ServicesDep, next: Annotated[str, Query(description="page to go on to", max_length=2000)] = "/jobs"
) -> RedirectResponse:
    if not services.settings.oidc_issuer:
        return _told(_NO_PROVIDER)
    from paceline.api.services.identity.oidc import SignInAttempt

    attempt = SignInAttempt(next=next if next.startswith("/") and not next.startswith(("//", "/\\")) else "/jobs")
    try:
        address = await _provider(request, services).authorization_url(attempt, _redirect_uri(request, services))
    except ProblemError as problem:
        return _told(problem)
    response = RedirectResponse(address, status_code=303)
    response.set_cookie(
        _cookie(request), attempt.cookie(), max_age=ATTEMPT_SECONDS, path="/", secure=is_secure(request), httponly=True, samesite="lax"
    )
    return response


@router.get("/oidc/callback", status_code=303)
async def finish_oidc(
    request: Request,
    services: ServicesDep,
    code: Annotated[str, Query(max_length=4000)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
    iss: Annotated[str | None, Query(max_length=2000)] = None,
) -> RedirectResponse:
    if not services.settings.oidc_issuer:
        return _told(_NO_PROVIDER)
    from paceline.api.services.identity.oidc import SignInAttempt, refused

    limit, peer = request.app.state.login_limit, peer_of(request)
    attempt: SignInAttempt | None = None
    found: ProviderIdentity | None = None
    try:
        limit.check(peer, services.now())
        attempt = SignInAttempt.of_cookie(request.cookies.get(_cookie(request)), state)
        if not code or (iss is not None and iss != services.settings.oidc_issuer):
            raise refused(f"the provider sent no code of its own ({request.query_params.get('error', 'no error is named')})")
        found = await _provider(request, services).identify(attempt, code, _redirect_uri(request, services))
        response = await _signed_in(request, services, found, attempt.next)
    except ProblemError as problem:
        if attempt is not None and problem.code in _FAILURES:  # any page can have this browser ask for what it did not begin
            limit.failed(peer, services.now())
            tried = TriedUser("", UNKNOWN, "single sign-on") if found is None else TriedUser(found.subject, found.name, "single sign-on")
            failed = FailedAttempt(tried, address_of(request), device_of(request), problem.detail)
            await request.app.state.failed_sign_ins.note(failed, services.now())
        response = _told(problem)
    response.delete_cookie(_cookie(request), path="/", secure=is_secure(request), httponly=True, samesite="lax")
    return response


async def _signed_in(request: Request, services: Services, found: ProviderIdentity, next: str) -> RedirectResponse:
    now, lifetime = services.now(), timedelta(days=services.settings.session_days)
    async with services.write() as session:
        user = await provider_users.signed_in_user(session, found.subject, found.name, found.groups, services.settings, now)
        opened = SessionOpening("oidc", address_of(request), device_of(request))
        secret, caller = await open_session(session, user, opened, now, lifetime=lifetime)
        await accounts.record(
            session, caller.actor, "auth.signed_in", "oidc", f"{user.name} signed in by the OpenID provider", user.id, now
        )
    response = RedirectResponse(next, status_code=303)
    set_session_cookie(response, request, secret, int(lifetime.total_seconds()))
    return response


def _told(problem: ProblemError) -> RedirectResponse:
    """The login page, which has words of its own for each code: a text in an address could be anybody's."""
    logger.warning("single sign-on was refused: %s", problem)
    return RedirectResponse(f"/login?{urlencode({'refused': problem.code})}", status_code=303)


def _provider(request: Request, services: Services) -> OidcProvider:
    """The provider of these settings, made at its first use: Authlib and joserfc are loaded only where one is set."""
    state = request.app.state
    if not hasattr(state, "oidc"):
        state.oidc = importlib.import_module("paceline.api.services.identity.oidc").OidcProvider(services.settings)
    return cast("OidcProvider", state.oidc)


def _redirect_uri(request: Request, services: Services) -> str:
    return (services.settings.public_url or str(request.base_url)).rstrip("/") + CALLBACK


def _cookie(request: Request) -> str:
    return f"{cookie_name(request)}_oidc"
