"""Users and their API keys: create, change, revoke. Whatever takes rights away nudges open sockets in the same breath."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import nudge_after_commit
from api.errors import ProblemError, not_found
from api.schemas.identity import ApiKey, ApiKeyCreate, ApiKeyCreated, User, UserCreate, UserUpdate
from api.services import bus, events, identity
from api.services.identity import Caller
from db.models.identity import ApiKeyRow, UserRow
from db.repositories import identity as repository


def describe_user(row: UserRow) -> User:
    return User.model_validate({"id": row.id, "name": row.name, "role": row.role, "disabled": row.disabled, "created_at": row.created_at})


def describe_key(row: ApiKeyRow) -> ApiKey:
    return ApiKey.model_validate({name: getattr(row, name) for name in ApiKey.model_fields})


async def user_of(session: AsyncSession, user_id: str) -> UserRow:
    user = await session.get(UserRow, user_id)
    if user is None:
        raise not_found("user", user_id)
    return user


async def create_user(session: AsyncSession, caller: Caller, wanted: UserCreate, now: datetime) -> User:
    if await repository.user_by_name(session, wanted.name) is not None:
        raise ProblemError("already_exists", f"there is a user {wanted.name!r}; choose another name")
    user = UserRow(name=wanted.name, role=wanted.role, created_at=now)
    session.add(user)
    await session.flush()
    await _record(session, caller, "user.created", f"{caller.name} created user {user.name} with the role {user.role}", user.id, now)
    return describe_user(user)


async def update_user(session: AsyncSession, caller: Caller, user_id: str, change: UserUpdate, now: datetime) -> User:
    user = await user_of(session, user_id)
    was_admin = user.role == "admin" and not user.disabled
    user.role = change.role or user.role
    user.disabled = user.disabled if change.disabled is None else change.disabled
    await session.flush()
    if was_admin and await repository.count_admins(session) == 0:
        raise ProblemError("last_admin", f"{user.name} is the last admin; make somebody else admin first")
    if user.disabled:
        await repository.delete_sessions_of(session, user.id)
    state = f"role {user.role}, {'disabled' if user.disabled else 'enabled'}"
    await _record(session, caller, "user.updated", f"{caller.name} changed user {user.name}: {state}", user.id, now)
    nudge_after_commit(session, bus.IDENTITY)
    return describe_user(user)


async def create_key(session: AsyncSession, caller: Caller, wanted: ApiKeyCreate, now: datetime) -> ApiKeyCreated:
    """A key of the caller's own. A key made with a key is never stronger than that key."""
    if not caller.may(wanted.role):
        raise ProblemError("forbidden", f"role={wanted.role} is more than your own ({caller.role}); ask for {caller.role} or less")
    user = await user_of(session, caller.user_id)
    expires = None if wanted.expires_in_days is None else now + timedelta(days=wanted.expires_in_days)
    key, row = await identity.create_api_key(session, user, name=wanted.name, role=wanted.role, now=now, expires_at=expires)
    await _record(session, caller, "key.created", f"{caller.name} created API key {row.prefix}... ({row.name})", row.id, now)
    return ApiKeyCreated(**describe_key(row).model_dump(), key=key)


async def revoke_key(session: AsyncSession, caller: Caller, key_id: str, now: datetime) -> None:
    """One's own, or as admin anybody's. Revoking twice is harmless."""
    row = await session.get(ApiKeyRow, key_id)
    if row is None or (row.user_id != caller.user_id and not caller.may("admin")):
        raise not_found("key", key_id)
    if row.revoked_at is not None:
        return
    row.revoked_at = now
    await _record(session, caller, "key.revoked", f"{caller.name} revoked API key {row.prefix}... ({row.name})", row.id, now)
    nudge_after_commit(session, bus.IDENTITY)


async def _record(session: AsyncSession, caller: Caller, type: str, message: str, subject: str, now: datetime) -> None:
    await events.record(session, type=type, actor=caller.actor, cause="request", message=message, data={"id": subject}, time=now)
