"""Signing in and out, and the sessions of browsers: list them, end them. What ends a session closes its open sockets too."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus, identity
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import Caller, SessionOpening
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.identity import BrowserSession
from paceline.api.services.identity import accounts
from paceline.credentials import KEY_PREFIX, hash_secret
from paceline.db.models.identity import ApiKeyRow, UserRow
from paceline.db.repositories import identity as repository
from paceline.db.repositories.identity import OpenSession


async def sign_in(
    session: AsyncSession, token: str, address: str, device: str | None, now: datetime, lifetime: timedelta
) -> tuple[str, Caller]:
    """Open a session with the token of a login link, which is used up, or with an API key. Returns (the session's secret, its caller)."""
    key: ApiKeyRow | None = None
    if token.startswith(KEY_PREFIX):
        user, key = await _holder_of(session, token, now)
    else:
        user = await _holder_of_link(session, token, now)
    opened = SessionOpening("api_key" if key else "login_link", address, device)
    secret, caller = await identity.open_session(session, user, opened, now, lifetime=lifetime, key=key)
    with_key = f" with API key {key.prefix}... ({key.name})" if key else ""
    await accounts.record(session, caller.actor, "auth.signed_in", opened.by, f"{user.name} signed in{with_key}", user.id, now)
    return secret, caller


async def _holder_of(session: AsyncSession, secret: str, now: datetime) -> tuple[UserRow, ApiKeyRow]:
    found = await repository.key_with_user(session, hash_secret(secret.strip()))
    if found is None or found[1].disabled or not identity.is_live(found[0], now):
        raise ProblemError("invalid_credential", "this API key is unknown, expired or revoked")
    key, user = found
    return user, key


async def _holder_of_link(session: AsyncSession, token: str, now: datetime) -> UserRow:
    user = await repository.use_login_link(session, hash_secret(token), now)
    if user is None or user.disabled:
        raise ProblemError("invalid_login_link", "this link has expired or was already used")
    return user


async def sign_out(session: AsyncSession, caller: Caller, now: datetime) -> None:
    await repository.delete_session(session, caller.credential)
    await accounts.record(session, caller.actor, "auth.signed_out", "request", f"{caller.name} signed out", caller.user_id, now)
    nudge_after_commit(session, bus.IDENTITY)


def describe(found: OpenSession, caller: Caller) -> BrowserSession:
    row, user, key = found
    return BrowserSession.model_validate(
        {
            **{name: getattr(row, name) for name in BrowserSession.model_fields if hasattr(row, name)},
            "id": repository.session_id(row),
            "user_name": user.name,
            "key_prefix": key.prefix if key else None,
            "current": row.hash == caller.credential,
        }
    )


async def end(session: AsyncSession, caller: Caller, session_id: str, now: datetime) -> None:
    """End a session of the caller, or as admin that of any user."""
    found = await repository.session_named(session, session_id)
    if found is None or (found[0].user_id != caller.user_id and not caller.may("admin")):
        raise not_found("session", session_id)
    row, user, _ = found
    await repository.delete_session(session, row.hash)
    where = f" ({row.device})" if row.device else ""
    message = f"{caller.name} ended a session of {user.name}{where}"
    await accounts.record(session, caller.actor, "session.ended", "request", message, session_id, now)
    nudge_after_commit(session, bus.IDENTITY)
