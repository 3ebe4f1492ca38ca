"""Signing in and out, for browsers."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request, Response

from paceline.api.core import bus, identity
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import Caller
from paceline.api.core.origin import clear_session_cookie, same_origin, set_session_cookie
from paceline.api.deps import ServicesDep, Viewer, WriteSession
from paceline.api.errors import ProblemError
from paceline.api.middleware.rate_limit import peer_of
from paceline.api.schemas.identity import LoginRequest, Me
from paceline.api.services.identity import accounts
from paceline.api.settings import Settings
from paceline.db.repositories import identity as repository

router = APIRouter(prefix="/auth", tags=["auth"])


def describe(caller: Caller, settings: Settings) -> Me:
    return Me(
        user_id=caller.user_id,
        name=caller.name,
        role=caller.role,
        members_may=settings.members_may,
        csrf_token=caller.csrf_token,
        guest=caller.kind == "guest",
        mock=settings.mock_db,
    )


@router.post("/login")
async def login(body: LoginRequest, request: Request, response: Response, services: ServicesDep) -> Me:
    if not same_origin(request):
        raise ProblemError("csrf", "sign in from the dashboard itself")
    limit, peer = request.app.state.login_limit, peer_of(request)
    limit.check(peer, services.now())
    lifetime = timedelta(days=services.settings.session_days)
    try:
        async with services.write() as session:
            secret, caller = await identity.redeem_login_link(session, body.token, services.now(), lifetime)
            message = f"{caller.name} signed in"
            await accounts.record(session, caller.actor, "auth.signed_in", "login_link", message, caller.user_id, services.now())
    except ProblemError:
        limit.failed(peer, services.now())
        raise
    set_session_cookie(response, request, secret, int(lifetime.total_seconds()))
    return describe(caller, services.settings)


@router.post("/logout", status_code=204)
async def logout(request: Request, response: Response, caller: Viewer, session: WriteSession) -> None:
    if caller.kind == "session":
        await repository.delete_session(session, caller.credential)
        clear_session_cookie(response, request)
        nudge_after_commit(session, bus.IDENTITY)


@router.get("/me")
async def me(caller: Viewer, services: ServicesDep) -> Me:
    return describe(caller, services.settings)
