"""Queries about users, keys, sessions, links and tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import CursorResult, Select, and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import NodeState
from paceline.db.models.identity import ApiKeyRow, JoinTokenRow, LoginLinkRow, SessionRow, UserRow
from paceline.db.models.nodes import NodeRow


async def key_with_user(session: AsyncSession, digest: str) -> tuple[ApiKeyRow, UserRow] | None:
    query = select(ApiKeyRow, UserRow).join(UserRow, UserRow.id == ApiKeyRow.user_id).where(ApiKeyRow.hash == digest)
    row = (await session.execute(query)).one_or_none()
    return None if row is None else (row[0], row[1])


async def key_locked(session: AsyncSession, digest: str) -> ApiKeyRow | None:
    query = select(ApiKeyRow).where(ApiKeyRow.hash == digest).with_for_update().execution_options(populate_existing=True)
    return (await session.scalars(query)).one_or_none()


async def key_locked_by_id(session: AsyncSession, key_id: str) -> ApiKeyRow | None:
    return await session.get(ApiKeyRow, key_id, with_for_update=True, populate_existing=True)


async def keys_made_with(session: AsyncSession, key_id: str) -> Sequence[str]:
    """The ids of the keys that were made with this key, the newest first."""
    return (await session.scalars(select(ApiKeyRow.id).where(ApiKeyRow.parent_id == key_id).order_by(ApiKeyRow.id.desc()))).all()


async def release_key_name(session: AsyncSession, user_id: str, name: str, now: datetime) -> None:
    """Take the name from the key of the user that holds it and no longer works."""
    over = or_(ApiKeyRow.revoked_at.is_not(None), ApiKeyRow.expires_at <= now)
    rows = update(ApiKeyRow).where(ApiKeyRow.user_id == user_id, ApiKeyRow.name == name, ApiKeyRow.holds_name, over)
    await session.execute(rows.values(holds_name=False))


async def keys_named(session: AsyncSession, user_id: str, name: str) -> Sequence[ApiKeyRow]:
    """The keys of a user with this name that are not revoked, the oldest first."""
    query = select(ApiKeyRow).where(ApiKeyRow.user_id == user_id, ApiKeyRow.name == name, ApiKeyRow.revoked_at.is_(None))
    return (await session.scalars(query.order_by(ApiKeyRow.id))).all()


#: The beginning of a session's hash names it wherever people see it: 80 bits, with which nobody can sign in.
SESSION_ID_LENGTH = 20

#: A session, its user, and the key that signed in.
OpenSession = tuple[SessionRow, UserRow, ApiKeyRow | None]


def _open_sessions() -> Select[SessionRow, UserRow, ApiKeyRow]:
    query = select(SessionRow, UserRow, ApiKeyRow).join(UserRow, UserRow.id == SessionRow.user_id)
    return query.outerjoin(ApiKeyRow, ApiKeyRow.id == SessionRow.key_id)


def session_id(row: SessionRow) -> str:
    return row.hash[:SESSION_ID_LENGTH]


async def session_with_user(session: AsyncSession, digest: str) -> OpenSession | None:
    row = (await session.execute(_open_sessions().where(SessionRow.hash == digest))).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


async def session_named(session: AsyncSession, wanted: str) -> OpenSession | None:
    named = func.substr(SessionRow.hash, 1, SESSION_ID_LENGTH) == wanted
    row = (await session.execute(_open_sessions().where(named))).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


async def sessions_page(
    session: AsyncSession, user_id: str | None, now: datetime, before: tuple[datetime, str] | None, limit: int
) -> Sequence[OpenSession]:
    """A page of the sessions that are not over, the newest first. `user_id` None: the sessions of all users."""
    query = _open_sessions().where(SessionRow.expires_at > now, UserRow.disabled.is_(False))
    if user_id is not None:
        query = query.where(SessionRow.user_id == user_id)
    if before is not None:
        moment, digest = before
        query = query.where(or_(SessionRow.created_at < moment, and_(SessionRow.created_at == moment, SessionRow.hash < digest)))
    rows = await session.execute(query.order_by(SessionRow.created_at.desc(), SessionRow.hash.desc()).limit(limit))
    return [(row[0], row[1], row[2]) for row in rows]


async def nodes_by_credentials(session: AsyncSession, digests: Collection[str]) -> dict[str, NodeRow]:
    query = select(NodeRow).where(NodeRow.credential_hash.in_(digests))
    return {node.credential_hash: node for node in await session.scalars(query)}


async def node_by_credential(session: AsyncSession, digest: str) -> NodeRow | None:
    return (await session.scalars(select(NodeRow).where(NodeRow.credential_hash == digest))).one_or_none()


async def user_by_name(session: AsyncSession, name: str) -> UserRow | None:
    return (await session.scalars(select(UserRow).where(UserRow.name == name))).one_or_none()


async def user_by_subject(session: AsyncSession, subject: str) -> UserRow | None:
    return (await session.scalars(select(UserRow).where(UserRow.oidc_subject == subject))).one_or_none()


async def admins_locked(session: AsyncSession) -> Sequence[str]:
    """The ids of the admins, locked: of two changes that together would leave none, the second one waits and sees the first."""
    query = select(UserRow.id).where(UserRow.role == "admin", UserRow.disabled.is_(False)).order_by(UserRow.id)
    return (await session.scalars(query.with_for_update(key_share=True))).all()


async def use_login_link(session: AsyncSession, digest: str, now: datetime) -> UserRow | None:
    """Mark the link used and return its user; None when it was used, has expired or is unknown. One of two racers wins."""
    used = (
        update(LoginLinkRow)
        .where(LoginLinkRow.hash == digest, LoginLinkRow.used_at.is_(None), LoginLinkRow.expires_at > now)
        .values(used_at=now)
        .returning(LoginLinkRow.user_id)
    )
    user_id = await session.scalar(used)
    return None if user_id is None else await session.get(UserRow, user_id)


async def user_of_link(session: AsyncSession, digest: str) -> UserRow | None:
    """The user of a login link, also of one that was used or has expired; None where it is unknown."""
    query = select(UserRow).join(LoginLinkRow, LoginLinkRow.user_id == UserRow.id).where(LoginLinkRow.hash == digest)
    return (await session.scalars(query)).one_or_none()


async def launch_of_token(session: AsyncSession, digest: str, now: datetime) -> str | None:
    """The launch that a valid join token was made for; None: it was made for none, or is not valid."""
    query = select(JoinTokenRow.launch_id).where(JoinTokenRow.hash == digest, JoinTokenRow.expires_at > now)
    return (await session.scalars(query)).one_or_none()


async def revoke_tokens_of_launch(session: AsyncSession, launch_id: str) -> None:
    await session.execute(delete(JoinTokenRow).where(JoinTokenRow.launch_id == launch_id))


async def use_join_token(session: AsyncSession, digest: str, now: datetime) -> bool:
    """Use up a token that was made for nobody in particular. Returns whether it was valid."""
    used = (
        update(JoinTokenRow)
        .where(
            JoinTokenRow.hash == digest,
            JoinTokenRow.used_at.is_(None),
            JoinTokenRow.expires_at > now,
            JoinTokenRow.launch_id.is_(None),
        )
        .values(used_at=now)
    )
    return cast("CursorResult[Any]", await session.execute(used)).rowcount == 1


async def delete_session(session: AsyncSession, digest: str) -> None:
    await session.execute(delete(SessionRow).where(SessionRow.hash == digest))


async def delete_sessions_of(session: AsyncSession, user_id: str) -> None:
    await session.execute(delete(SessionRow).where(SessionRow.user_id == user_id))


async def delete_sessions_of_key(session: AsyncSession, key_id: str) -> None:
    await session.execute(delete(SessionRow).where(SessionRow.key_id == key_id))


async def touch(session: AsyncSession, kind: type[ApiKeyRow | SessionRow], digest: str, user_id: str, moment: datetime) -> None:
    """Write when a key or a session was last used, and so when its user was last active."""
    await session.execute(update(kind).where(kind.hash == digest).values(last_used_at=moment))
    await session.execute(update(UserRow).where(UserRow.id == user_id).values(last_active_at=moment))


async def users_page(session: AsyncSession, after: str | None, limit: int, name: str | None = None) -> Sequence[UserRow]:
    query = select(UserRow).order_by(UserRow.id).limit(limit)
    if name is not None:
        query = query.where(UserRow.name == name)
    if after is not None:
        query = query.where(UserRow.id > after)
    return (await session.scalars(query)).all()


async def keys_page(session: AsyncSession, user_id: str | None, before: str | None, limit: int) -> Sequence[tuple[ApiKeyRow, UserRow]]:
    """A page of keys with their users, the newest first: ids are in the order of time. `user_id` None: the keys of all users."""
    query = select(ApiKeyRow, UserRow).join(UserRow, UserRow.id == ApiKeyRow.user_id).order_by(ApiKeyRow.id.desc()).limit(limit)
    if user_id is not None:
        query = query.where(ApiKeyRow.user_id == user_id)
    if before is not None:
        query = query.where(ApiKeyRow.id < before)
    return [(row[0], row[1]) for row in await session.execute(query)]


async def present_node(session: AsyncSession, name: str) -> NodeRow | None:
    return (await session.scalars(select(NodeRow).where(NodeRow.name == name, NodeRow.state != NodeState.GONE))).one_or_none()


async def forget_expired(session: AsyncSession, now: datetime) -> None:
    """Delete expired sessions, login links and join tokens."""
    for model in (SessionRow, LoginLinkRow, JoinTokenRow):
        await session.execute(delete(model).where(model.expires_at <= now))
