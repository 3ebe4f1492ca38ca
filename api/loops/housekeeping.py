"""Deletes expired records: sessions, login links, join tokens, idempotency keys, old deliveries of notifications, retired secrets, launches that are
over."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from paceline.api.core.context import Services
from paceline.api.services.jobs import secrets
from paceline.api.services.lifecycle.isolation import each_phase
from paceline.db.repositories import idempotency, identity, notifications, provisioning

INTERVAL_SECONDS = 600.0
IDEMPOTENCY_KEYS_KEPT = timedelta(days=1)
DELIVERIES_KEPT = timedelta(days=90)
ENDED_LAUNCHES_KEPT = timedelta(days=7)


async def step_once(services: Services, now: datetime) -> None:
    phases = (_forget_credentials, _forget_idempotency_keys, _forget_deliveries, _forget_launches, secrets.forget_retired)
    await each_phase([partial(phase, services) for phase in phases], now)


async def _forget_credentials(services: Services, now: datetime) -> None:
    async with services.write() as session:
        await identity.forget_expired(session, now)


async def _forget_idempotency_keys(services: Services, now: datetime) -> None:
    async with services.write() as session:
        await idempotency.forget_before(session, now - IDEMPOTENCY_KEYS_KEPT)


async def _forget_deliveries(services: Services, now: datetime) -> None:
    async with services.write() as session:
        await notifications.forget_before(session, now - DELIVERIES_KEPT)


async def _forget_launches(services: Services, now: datetime) -> None:
    async with services.write() as session:
        await provisioning.forget_ended(session, now - ENDED_LAUNCHES_KEPT)
