"""Users and their API keys: create, change, revoke. Every change that takes rights away nudges open sockets in the same transaction."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus, identity
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor
from paceline.api.schemas.identity import ApiKey, ApiKeyCreate, ApiKeyCreated, Role, User, UserCreate, UserUpdate
from paceline.api.services.lifecycle import events
from paceline.db.models.identity import ApiKeyRow, UserRow
from paceline.db.repositories import identity as repository


def describe_user(row: UserRow) -> User:
    return User.model_validate({name: getattr(row, name) for name in User.model_fields})


def describe_key(row: ApiKeyRow, user: UserRow) -> ApiKey:
    own = {name: getattr(row, name) for name in ApiKey.model_fields if name != "user_name"}
    return ApiKey.model_validate({**own, "user_name": user.name})


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
    await record(
        session, caller.actor, "user.created", "request", f"{caller.name} created user {user.name} with the role {user.role}", user.id, now
    )
    return describe_user(user)


async def update_user(session: AsyncSession, caller: Caller, user_id: str, change: UserUpdate, now: datetime) -> User:
    admins = await repository.admins_locked(session)
    user = await user_of(session, user_id)
    user.role = change.role or user.role
    user.disabled = user.disabled if change.disabled is None else change.disabled
    if list(admins) == [user.id] and (user.role != "admin" or user.disabled):
        raise ProblemError("last_admin", f"{user.name} is the last admin; make somebody else admin first")
    if user.disabled:
        await repository.delete_sessions_of(session, user.id)
    state = f"role {user.role}, {'disabled' if user.disabled else 'enabled'}"
    await record(session, caller.actor, "user.updated", "request", f"{caller.name} changed user {user.name}: {state}", user.id, now)
    nudge_after_commit(session, bus.IDENTITY)
    return describe_user(user)


async def create_key(session: AsyncSession, caller: Caller, wanted: ApiKeyCreate, now: datetime) -> ApiKeyCreated:
    """Create a key of the caller's own. A key made with a key is never stronger than that key, and never outlives it."""
    if not caller.may(wanted.role):
        raise ProblemError("forbidden", f"role={wanted.role} is more than your own ({caller.role}); ask for {caller.role} or less")
    user = await user_of(session, caller.user_id)
    parent = await _parent_of(session, caller, now)
    expires = _expiry(wanted, parent, now)
    key, row = await create_named_key(session, user, name=wanted.name, role=wanted.role, now=now, expires_at=expires, parent=parent)
    made_with = f" with key {parent.prefix}..." if parent else ""
    message = f"{caller.name} created API key {row.prefix}... ({row.name}){made_with}"
    await record(session, caller.actor, "key.created", "request", message, row.id, now)
    return ApiKeyCreated(**describe_key(row, user).model_dump(), key=key)


async def create_named_key(
    session: AsyncSession,
    user: UserRow,
    *,
    name: str,
    role: Role,
    now: datetime,
    expires_at: datetime | None,
    parent: ApiKeyRow | None = None,
    made: str | None = None,
) -> tuple[str, ApiKeyRow]:
    """A new API key, or `made`, which was made beforehand: (the key, shown once; its row). Raises already_exists where a key of the user that
    still works has this name, or is being made at the same moment: which of two to revoke could not be told by it."""
    for known in await repository.keys_named(session, user.id, name):
        if identity.is_live(known, now):
            raise _name_taken(user.name, name, f"{known.prefix}...")
    await repository.release_key_name(session, user.id, name, now)
    owner = user.name  # cannot be read once the statement has failed
    try:
        return await identity.create_api_key(session, user, name=name, role=role, now=now, expires_at=expires_at, parent=parent, key=made)
    except IntegrityError as error:
        raise _name_taken(owner, name, "made just now") from error


async def revoke_keys_named(session: AsyncSession, user: UserRow, name: str, actor: Actor, now: datetime) -> None:
    """Revoke the user's keys of this name, and what they made, since another is to take their place."""
    for old in await repository.keys_named(session, user.id, name):
        await revoke_with_descendants(session, old, actor, "replaced", now)


def _name_taken(owner: str, name: str, which: str) -> ProblemError:
    return ProblemError("already_exists", f"{owner} has an API key {name!r} already ({which}); choose another name, or revoke it first")


async def _parent_of(session: AsyncSession, caller: Caller, now: datetime) -> ApiKeyRow | None:
    """The key that the caller stands on, locked: it cannot be revoked before what it makes is there to be revoked with it."""
    if caller.key is None:
        return None
    parent = await repository.key_locked(session, caller.key)
    if parent is None or parent.revoked_at is not None:
        raise ProblemError("invalid_credential", "this API key was revoked just now")
    return parent


def _expiry(wanted: ApiKeyCreate, parent: ApiKeyRow | None, now: datetime) -> datetime | None:
    limit = parent.expires_at if parent else None
    asked_for = None if wanted.expires_in_days is None else now + timedelta(days=wanted.expires_in_days)
    if limit is None or (asked_for is not None and asked_for <= limit):
        return asked_for
    if asked_for is not None and "expires_in_days" in wanted.model_fields_set:
        raise ProblemError(
            "forbidden",
            f"expires_in_days={wanted.expires_in_days} is later than the key that you use ({limit:%Y-%m-%d %H:%M} UTC), and a key never outlives "
            "the one that made it; leave it out for the same end, or make this key while signed in to the dashboard with a link",
        )
    return limit


async def revoke_key(session: AsyncSession, caller: Caller, key_id: str, now: datetime) -> None:
    """Revoke a key of the caller, or as admin that of any user, with all keys that were made with it. Revoking twice is harmless."""
    row = await session.get(ApiKeyRow, key_id)
    if row is None or (row.user_id != caller.user_id and not caller.may("admin")):
        raise not_found("key", key_id)
    await revoke_with_descendants(session, row, caller.actor, "request", now)


async def revoke_with_descendants(session: AsyncSession, key: ApiKeyRow, actor: Actor, cause: str, now: datetime) -> None:
    """Revoke keys, each with an event of its own. Parents first: a key that is being used to make another one is waited for. Those that one key
    made are revoked, and locked, the oldest first."""
    waiting = [key.id]
    while waiting:
        row = await repository.key_locked_by_id(session, waiting.pop())
        if row is None:
            continue
        waiting += await repository.keys_made_with(session, row.id)
        if row.revoked_at is not None:
            continue
        row.revoked_at = now
        await session.flush()
        await repository.delete_sessions_of_key(session, row.id)
        why = "" if row.id == key.id else f", since key {key.prefix}... ({key.name}) was"
        message = f"{actor.name} revoked API key {row.prefix}... ({row.name}){why}"
        await record(session, actor, "key.revoked", cause, message, row.id, now)
        nudge_after_commit(session, bus.IDENTITY)


async def create_login_link(session: AsyncSession, actor: Actor, user: UserRow, now: datetime, cause: str) -> tuple[str, datetime]:
    """A new login link: (token, when it expires). Its bearer acts as that user, so the history names its creator. Raises user_disabled."""
    if user.disabled:
        raise ProblemError("user_disabled", f"{user.name} is disabled, and a login link would let nobody in: enable the user first")
    token, expires = await identity.create_login_link(session, user, now)
    await record(session, actor, "auth.link_created", cause, f"{actor.name} made a login link for {user.name}", user.id, now)
    return token, expires


async def record(session: AsyncSession, actor: Actor, type: str, cause: str, message: str, subject: str, now: datetime) -> None:
    await events.record(session, type=type, actor=actor, cause=cause, message=message, data={"id": subject}, time=now)
