"""Signing in and out, for browsers."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request, Response

from paceline.api.core.identity import Caller
from paceline.api.core.origin import address_of, clear_session_cookie, device_of, same_origin, set_session_cookie
from paceline.api.deps import ServicesDep, Viewer, WriteSession
from paceline.api.errors import ProblemError
from paceline.api.middleware.rate_limit import peer_of
from paceline.api.schemas.identity import LoginRequest, Me
from paceline.api.services.identity import sign_ins
from paceline.api.services.identity.failed_sign_ins import FailedAttempt, tried_with
from paceline.api.settings import Settings

router = APIRouter(prefix="/auth", tags=["auth"])


def describe(caller: Caller, settings: Settings) -> Me:
    return Me(
        user_id=caller.user_id,
        name=caller.name,
        role=caller.role,
        members_may=settings.members_may,
        exec_by=settings.exec_by,
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
            secret, caller = await sign_ins.sign_in(session, body.token, address_of(request), device_of(request), services.now(), lifetime)
    except ProblemError as problem:
        limit.failed(peer, services.now())
        async with services.control.read() as reading:
            tried = await tried_with(reading, body.token)
        attempt = FailedAttempt(tried, address_of(request), device_of(request), problem.detail)
        await request.app.state.failed_sign_ins.note(attempt, services.now())
        raise
    set_session_cookie(response, request, secret, int(lifetime.total_seconds()))
    return describe(caller, services.settings)


@router.post("/logout", status_code=204)
async def logout(request: Request, response: Response, caller: Viewer, session: WriteSession, services: ServicesDep) -> None:
    if caller.kind == "session":
        await sign_ins.sign_out(session, caller, services.now())
        clear_session_cookie(response, request)


@router.get("/me")
async def me(caller: Viewer, services: ServicesDep) -> Me:
    return describe(caller, services.settings)
