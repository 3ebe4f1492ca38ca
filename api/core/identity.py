"""Identities of callers: sessions, API keys, login links, node credentials. Plain functions, session first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, cast

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Actor, RequestActor
from paceline.api.schemas.identity import Role
from paceline.credentials import KEY_PREFIX, hash_secret, new_secret
from paceline.db.models.identity import ApiKeyRow, LoginLinkRow, SessionRow, UserRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import identity as repository

RANKING: dict[str, int] = {"viewer": 0, "member": 1, "admin": 2}
LOGIN_LINK_LIFETIME = timedelta(minutes=15)

SignedInBy = Literal["login_link", "api_key", "oidc"]


@dataclass(frozen=True)
class Caller:
    """A verified identity. `credential` is the hash of the session or key it came with, of a guest that of the guests' session;
    `csrf_token` is for browsers only. `key` is the hash of the key that it stands on: its own, or that which signed the session in."""

    user_id: str
    name: str
    role: Role
    kind: Literal["session", "key", "guest"]
    credential: str
    csrf_token: str | None = None
    key: str | None = None
    address: str = ""
    via: str | None = None
    used_at: datetime | None = None

    @property
    def actor(self) -> Actor:
        return RequestActor(kind="user", id=self.user_id, name=self.name, address=self.address, via=self.via)

    def may(self, role: Role) -> bool:
        return RANKING[self.role] >= RANKING[role]


SYSTEM = Actor(kind="system", id="coordinator", name="coordinator")
AUTOSCALER = Actor(kind="system", id="autoscaler", name="autoscaler")


def node_actor(node: NodeRow) -> Actor:
    return Actor(kind="node", id=node.id, name=node.name)


def weaker(one: str, other: str) -> Role:
    """The role that allows less: a key never does more than its user."""
    return cast(Role, min(one, other, key=RANKING.__getitem__))


def is_live(key: ApiKeyRow, now: datetime) -> bool:
    """Whether a key is neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


async def caller_of_key(session: AsyncSession, digest: str, now: datetime) -> Caller | None:
    found = await repository.key_with_user(session, digest)
    if found is None:
        return None
    key, user = found
    if user.disabled or not is_live(key, now):
        return None
    return Caller(
        user_id=user.id,
        name=user.name,
        role=weaker(key.role, user.role),
        kind="key",
        credential=digest,
        key=digest,
        via=f"API key {key.prefix}... ({key.name})",
        used_at=key.last_used_at,
    )


async def caller_of_session(session: AsyncSession, digest: str, now: datetime) -> Caller | None:
    found = await repository.session_with_user(session, digest)
    if found is None:
        return None
    row, user, key = found
    if user.disabled or row.expires_at <= now or (key is not None and not is_live(key, now)):
        return None
    return _caller_in_session(row, user, key)


def _caller_in_session(row: SessionRow, user: UserRow, key: ApiKeyRow | None) -> Caller:
    return Caller(
        user_id=user.id,
        name=user.name,
        role=weaker(user.role, key.role if key else user.role),
        kind="session",
        credential=row.hash,
        csrf_token=row.csrf_token,
        key=key.hash if key else None,
        via=row.device,
        used_at=row.last_used_at,
    )


@dataclass(frozen=True)
class SessionOpening:
    """The way in which a session is opened, and the browser that it is for."""

    by: SignedInBy
    address: str
    device: str | None


async def still_valid(session: AsyncSession, caller: Caller, now: datetime) -> bool:
    """Whether the credential that opened a socket would open it again."""
    again = caller_of_key if caller.kind == "key" else caller_of_session
    return await again(session, caller.credential, now) is not None


async def node_of_credential(session: AsyncSession, bearer: str) -> NodeRow | None:
    """The node that this credential belongs to, gone ones included: the caller decides about these."""
    return await repository.node_by_credential(session, hash_secret(bearer))


async def open_session(
    session: AsyncSession, user: UserRow, opened: SessionOpening, now: datetime, *, lifetime: timedelta, key: ApiKeyRow | None = None
) -> tuple[str, Caller]:
    """A new session of a browser: (its secret, its caller). One that a key signs in to may do what the key may, and ends with it."""
    secret = new_secret()
    until = now + lifetime
    row = SessionRow(
        hash=hash_secret(secret),
        user_id=user.id,
        csrf_token=new_secret(),
        created_at=now,
        expires_at=min(until, key.expires_at) if key and key.expires_at else until,
        last_used_at=now,
        signed_in_by=opened.by,
        key_id=key.id if key else None,
        address=opened.address,
        device=opened.device,
    )
    user.last_active_at = now
    session.add(row)
    return secret, replace(_caller_in_session(row, user, key), address=opened.address)


async def create_login_link(session: AsyncSession, user: UserRow, now: datetime) -> tuple[str, datetime]:
    """A new login link: (token, when it expires)."""
    token, expires = new_secret(), now + LOGIN_LINK_LIFETIME
    session.add(LoginLinkRow(hash=hash_secret(token), user_id=user.id, expires_at=expires, used_at=None))
    return token, expires


def login_url(base: str, token: str) -> str:
    """The address at which the dashboard redeems the token. It may show up in a log on the way, so it works once and for minutes only."""
    return f"{base.rstrip('/')}/login?token={token}"


async def create_api_key(
    session: AsyncSession,
    user: UserRow,
    *,
    name: str,
    role: str,
    now: datetime,
    expires_at: datetime | None,
    parent: ApiKeyRow | None = None,
    key: str | None = None,
) -> tuple[str, ApiKeyRow]:
    """A new API key, or that which was made beforehand: (the key, shown once; its row)."""
    key = key or new_secret(KEY_PREFIX)
    row = ApiKeyRow(
        hash=hash_secret(key),
        prefix=key[: len(KEY_PREFIX) + 6],
        name=name,
        role=weaker(role, user.role),
        user_id=user.id,
        created_at=now,
        expires_at=expires_at,
        parent_id=parent.id if parent else None,
        holds_name=True,
    )
    session.add(row)
    await session.flush()
    return key, row


async def first_admin(session: AsyncSession, name: str, now: datetime) -> UserRow:
    """The user of this name; created as admin when there is no admin at all."""
    user = await repository.user_by_name(session, name)
    if user is not None:
        return user
    if await repository.admins_locked(session):
        raise ProblemError("not_found", f"there is no user {name!r}; an admin can create one in the dashboard or with POST /api/v1/users")
    user = UserRow(name=name, role="admin", created_at=now)
    session.add(user)
    await session.flush()
    return user
