"""What has expired is forgotten, and nothing else."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.loops import housekeeping
from paceline.db.models.identity import IdempotencyKeyRow, JoinTokenRow, LoginLinkRow, SessionRow
from tests import factories
from tests.factories import START


async def test_the_expired_is_forgotten(services: Services) -> None:
    past, future = START - timedelta(seconds=1), START + timedelta(days=1)
    async with services.write() as session:
        user, _ = await factories.create_user(session)
        for name, expires in (("old", past), ("new", future)):
            session.add(SessionRow(hash=name, user_id=user.id, csrf_token="", created_at=past, expires_at=expires))
            session.add(LoginLinkRow(hash=name, user_id=user.id, expires_at=expires))
            session.add(JoinTokenRow(hash=name, expires_at=expires, created_by="ada"))
        for name, created in (("old", START - timedelta(days=2)), ("new", past)):
            session.add(IdempotencyKeyRow(key=name, user_id=user.id, route="", body_hash="", created_at=created))
    await housekeeping.step_once(services, START)
    async with services.control.read() as session:
        for column in (SessionRow.hash, LoginLinkRow.hash, JoinTokenRow.hash, IdempotencyKeyRow.key):
            assert list(await session.scalars(select(column))) == ["new"]
