"""Users, their API keys, the sessions of their browsers, and the audit of what they did."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from paceline.api.core import identity
from paceline.api.core.paging import Cursor, Fields, Limit, decode, moment, only, page_of
from paceline.api.deps import Admin, ReadSession, ServicesDep, Viewer, WriteSession
from paceline.api.schemas.audit import AuditEntry
from paceline.api.schemas.common import Page
from paceline.api.schemas.identity import (
    ApiKey,
    ApiKeyCreate,
    ApiKeyCreated,
    BrowserSession,
    LoginLink,
    User,
    UserCreate,
    UserUpdate,
)
from paceline.api.services.identity import accounts, sign_ins
from paceline.api.services.jobs.idempotency import Once
from paceline.api.services.lifecycle import events
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import identity as repository

router = APIRouter()
Name = Annotated[str | None, Query(description="the user of this name alone", max_length=64)]
WhoseActions = Annotated[str | None, Query(description="what the user of this name did", max_length=64)]
AuditAction = Annotated[
    str | None, Query(description="what was done, such as key.revoked, or to what kind of thing, such as key", max_length=64)
]


@router.get("/users", tags=["users"], response_model=Page[User])
async def list_users(
    session: ReadSession, _: Admin, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None, name: Name = None
) -> Page[User] | JSONResponse:
    after = decode(cursor, str)
    rows = await repository.users_page(session, str(after[0]) if after else None, limit + 1, name)
    page = page_of(rows, limit, accounts.describe_user, lambda row: (row.id,))
    return only(page, User, fields)


@router.post("/users", tags=["users"], status_code=201)
async def create_user(body: UserCreate, session: WriteSession, caller: Admin, services: ServicesDep, once: Once) -> User:
    return await once.run(session, body, User, lambda: accounts.create_user(session, caller, body, services.now()))


@router.patch("/users/{user_id}", tags=["users"])
async def update_user(user_id: str, body: UserUpdate, session: WriteSession, caller: Admin, services: ServicesDep) -> User:
    return await accounts.update_user(session, caller, user_id, body, services.now())


@router.post("/users/{user_id}/login-link", tags=["users"], status_code=201)
async def create_login_link(user_id: str, request: Request, session: WriteSession, caller: Admin, services: ServicesDep) -> LoginLink:
    user = await accounts.user_of(session, user_id)
    token, expires = await accounts.create_login_link(session, caller.actor, user, services.now(), "request")
    base = services.settings.public_url or str(request.base_url)
    return LoginLink(url=identity.login_url(base, token), expires_at=expires)


@router.get("/keys", tags=["keys"], response_model=Page[ApiKey])
async def list_keys(
    session: ReadSession, caller: Viewer, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None
) -> Page[ApiKey] | JSONResponse:
    """The caller's own keys, the newest first; an admin gets those of all users."""
    before = decode(cursor, str)
    whose = None if caller.may("admin") else caller.user_id
    rows = await repository.keys_page(session, whose, str(before[0]) if before else None, limit + 1)
    page = page_of(rows, limit, lambda row: accounts.describe_key(*row), lambda row: (row[0].id,))
    return only(page, ApiKey, fields)


@router.post("/keys", tags=["keys"], status_code=201)
async def create_key(body: ApiKeyCreate, session: WriteSession, caller: Viewer, services: ServicesDep, once: Once) -> ApiKeyCreated:
    return await once.run(session, body, ApiKeyCreated, lambda: accounts.create_key(session, caller, body, services.now()), secret=True)


@router.delete("/keys/{key_id}", tags=["keys"], status_code=204)
async def revoke_key(key_id: str, session: WriteSession, caller: Viewer, services: ServicesDep) -> None:
    await accounts.revoke_key(session, caller, key_id, services.now())


@router.get("/sessions", tags=["sessions"], response_model=Page[BrowserSession])
async def list_sessions(
    session: ReadSession, caller: Viewer, services: ServicesDep, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None
) -> Page[BrowserSession] | JSONResponse:
    """The browsers that are signed in as the caller; an admin gets those of all users. The newest first."""
    before = decode(cursor, str, str)
    whose = None if caller.may("admin") else caller.user_id
    last = (moment(before[0]), str(before[1])) if before else None
    rows = await repository.sessions_page(session, whose, services.now(), last, limit + 1)
    page = page_of(rows, limit, lambda row: sign_ins.describe(row, caller), lambda row: (row[0].created_at.isoformat(), row[0].hash))
    return only(page, BrowserSession, fields)


@router.delete("/sessions/{session_id}", tags=["sessions"], status_code=204)
async def end_session(session_id: str, session: WriteSession, caller: Viewer, services: ServicesDep) -> None:
    await sign_ins.end(session, caller, session_id, services.now())


@router.get("/audit", tags=["audit"], response_model=Page[AuditEntry])
async def list_audit(
    session: ReadSession,
    _: Admin,
    user: WhoseActions = None,
    action: AuditAction = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    fields: Fields = None,
) -> Page[AuditEntry] | JSONResponse:
    """List the actions of people, with the address that each came from, the newest first."""
    before = decode(cursor, int)
    rows = await event_rows.by_people(session, user=user, action=action, before=int(before[0]) if before else None, limit=limit + 1)
    return only(page_of(rows, limit, events.audited, lambda row: (row.seq,)), AuditEntry, fields)
