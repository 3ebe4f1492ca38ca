"""Deletes expired records: sessions, login links, join tokens, idempotency keys."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from paceline.api.core.context import Services
from paceline.api.loops.isolation import each_phase
from paceline.db.repositories import idempotency, identity

INTERVAL_SECONDS = 600.0
IDEMPOTENCY_KEYS_KEPT = timedelta(days=1)


async def step_once(services: Services, now: datetime) -> None:
    await each_phase([partial(_forget_credentials, services), partial(_forget_idempotency_keys, services)], now)


async def _forget_credentials(services: Services, now: datetime) -> None:
    async with services.write() as session:
        await identity.forget_expired(session, now)


async def _forget_idempotency_keys(services: Services, now: datetime) -> None:
    async with services.write() as session:
        await idempotency.forget_before(session, now - IDEMPOTENCY_KEYS_KEPT)
