"""Sends notifications: claims what is due, sends it in no transaction, and stores the answers. Channels do not wait for each other within a step."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.loops.due_looks import DueLooks
from paceline.api.services.notifications import deliveries
from paceline.db.repositories import notifications as rows

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 2.0
CHANNELS_AT_ONCE = 8


@dataclass
class Courier:
    """Keeps nothing from step to step: a delivery that is due and claimed by nobody is sent, whoever made it."""

    services: Services
    looks: DueLooks

    async def step_once(self, now: datetime) -> None:
        """Send what is due of each channel, a few messages each."""
        if not (await self.looks.look(now)).deliveries:
            return
        async with self.services.control.read() as session:
            due = await rows.due_channels(session, now)
        turns = asyncio.Semaphore(CHANNELS_AT_ONCE)
        results = await asyncio.gather(*(self._serve(channel_id, turns, now) for channel_id in due), return_exceptions=True)
        failures = [error for error in results if isinstance(error, BaseException)]
        for error in failures:
            logger.error("a channel of notifications was not served; the others were", exc_info=error)
        if failures:
            raise failures[0]
        async with self.services.control.read() as session:
            if await rows.has_due(session, now):
                self.services.bus.publish(bus.DELIVERIES)  # there is more to send: the next step begins at once

    async def _serve(self, channel_id: str, turns: asyncio.Semaphore, now: datetime) -> None:
        async with turns:
            async with self.services.write() as session:
                sendings = await deliveries.claim(session, channel_id, self.services.settings.public_url, now)
            for number, sending in enumerate(sendings):
                outcome = await deliveries.send(self.services, sending)
                async with self.services.write() as session:
                    await deliveries.store(session, sending, outcome, self.services.now())
                    if outcome.again:  # it is away: the others wait with this one
                        await deliveries.release(session, sendings[number + 1 :], self.services.now())
                if outcome.again:
                    return
