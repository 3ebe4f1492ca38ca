"""Credentials that whoever starts this coordinator has made beforehand, as `paceline up` does: its agents start beside it with their tokens."""

from __future__ import annotations

import logging
from datetime import timedelta

import msgspec

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.identity import accounts
from paceline.api.services.nodes import joining
from paceline.credentials import FirstCredentials, file_in

TOKEN_LIFETIME = timedelta(hours=1)

logger = logging.getLogger(__name__)


async def accept(services: Services) -> None:
    """Accept the credentials that lie in the data folder, if any: a key of the first admin, and join tokens. A damaged file is told and left out."""
    try:
        handed = FirstCredentials.take(services.settings.data)
    except msgspec.DecodeError as error:
        logger.error("%s was damaged (%s) and is left out", file_in(services.settings.data), error)
        return
    if handed is None:
        return
    now = services.now()
    async with services.write() as session:
        user = await identity.first_admin(session, "admin", now)
        await accounts.revoke_keys_named(session, user, handed.key_name, SYSTEM, now)
        _, row = await accounts.create_named_key(
            session, user, name=handed.key_name, role="admin", now=now, expires_at=None, made=handed.key
        )
        message = f"whoever started the coordinator made API key {row.prefix}... ({row.name}) for {user.name}"
        await accounts.record(session, SYSTEM, "key.created", "first_start", message, row.id, now)
        for token in handed.join_tokens:
            await joining.create_join_token(session, created_by=user.name, now=now, lifetime=TOKEN_LIFETIME, made=token)
