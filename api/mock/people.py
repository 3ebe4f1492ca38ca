"""The users of MOCK_DB: the guest, and people whose jobs the demo shows."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.core.identity import Caller
from paceline.api.schemas.identity import Role
from paceline.credentials import hash_secret, new_secret
from paceline.db.models.identity import SessionRow, UserRow

GUEST = "guest"
PEOPLE: dict[str, Role] = {"ada": "admin", "grace": "member", "alan": "member", "vera": "viewer"}
#: No mock coordinator lives that long.
LIFETIME = timedelta(days=365)


async def create(services: Services) -> dict[str, str]:
    """Create all users, and let guests in. Returns an API key of each demo user who may submit, by name."""
    now = services.now()
    async with services.write() as session:
        services.guest.caller = await _guest(session, now)
        keys = {}
        for name, role in PEOPLE.items():
            user = UserRow(name=name, role=role, created_at=now)
            session.add(user)
            await session.flush()
            if role != "viewer":
                keys[name], _ = await identity.create_api_key(session, user, name="demo", role=role, now=now, expires_at=None)
    return keys


async def _guest(session: AsyncSession, now: datetime) -> Caller:
    user = UserRow(name=GUEST, role="admin", created_at=now)
    session.add(user)
    await session.flush()
    digest, csrf = hash_secret(new_secret()), new_secret()
    session.add(SessionRow(hash=digest, user_id=user.id, csrf_token=csrf, created_at=now, expires_at=now + LIFETIME))
    return Caller(user_id=user.id, name=GUEST, role="admin", kind="guest", credential=digest, csrf_token=csrf)
