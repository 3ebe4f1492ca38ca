"""The users whom an OpenID provider signs in: found by their subject, created at their first time, with the role that their groups give."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.identity import SYSTEM
from paceline.api.errors import ProblemError
from paceline.api.schemas.identity import Role, UserCreate
from paceline.api.services.identity import accounts
from paceline.api.settings import Settings
from paceline.db.models.identity import UserRow
from paceline.db.repositories import identity as repository


def role_of(groups: frozenset[str], settings: Settings) -> Role | None:
    """The strongest role that one of these groups gives, or the default; None: none."""
    given: Any = next((role for role, named in settings.oidc_groups.items() if groups & named), settings.oidc_default_role)
    return None if given == "none" else given


async def signed_in_user(
    session: AsyncSession, subject: str, name: str, groups: frozenset[str], settings: Settings, now: datetime
) -> UserRow:
    """The user with this subject. Raises ProblemError for one who is disabled, has no role, or has the name of somebody else."""
    role = role_of(groups, settings)
    user = await repository.user_by_subject(session, subject)
    if user is not None and user.disabled:
        raise ProblemError("oidc_no_role", f"user {user.name} is disabled; an admin can enable the user again")
    if role is None and (user is None or settings.oidc_groups):
        raise ProblemError("oidc_no_role", f"{name} is in none of the groups that have a role here")
    if user is None:
        return await _created(session, subject, name, role or "viewer", now)
    if settings.oidc_groups and role is not None and role != user.role and not await _is_last_admin(session, user):
        user.role = role
        message = f"the groups of {user.name} at the OpenID provider give the role {role}"
        await accounts.record(session, SYSTEM, "user.updated", "oidc", message, user.id, now)
    return user


async def _is_last_admin(session: AsyncSession, user: UserRow) -> bool:
    return user.role == "admin" and list(await repository.admins_locked(session)) == [user.id]


async def _created(session: AsyncSession, subject: str, name: str, role: Role, now: datetime) -> UserRow:
    try:
        wanted = UserCreate(name=name, role=role)
    except ValidationError as error:
        raise ProblemError("oidc_refused", f"the provider calls the user {name!r}, which is no name for a user here") from error
    if await repository.user_by_name(session, wanted.name) is not None:
        raise ProblemError("already_exists", f"there is another user {name!r}, who does not sign in by this provider")
    user = UserRow(name=wanted.name, role=role, created_at=now, oidc_subject=subject)
    session.add(user)
    await session.flush()
    message = f"user {name} signed in by the OpenID provider for the first time, with the role {role}"
    await accounts.record(session, SYSTEM, "user.created", "oidc", message, user.id, now)
    return user
