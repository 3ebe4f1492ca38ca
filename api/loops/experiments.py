"""Moves experiments along: submits their trials as jobs, pauses and cancels them as one, and ends them. An experiment that raises is held up
alone (`lifecycle/isolation.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.core.troubles import Subject
from paceline.api.loops.due_looks import DueLooks
from paceline.api.services.experiments.advance import advance
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.db.repositories import experiments as rows

INTERVAL_SECONDS = 1.0
#: Turns of one experiment in one step; what is left comes in the next step, at once.
MOST_TURNS = 4


@dataclass
class ExperimentKeeper:
    """Keeps nothing from step to step: all that it goes by is in the tables."""

    services: Services
    looks: DueLooks

    async def step_once(self, now: datetime) -> None:
        ids = await self._unsettled() if (await self.looks.look(now)).experiments else []
        turns = PhaseTurns(self.services, "move its trials along", now)
        self.services.troubles.forget_all_but(turns.task, set(ids))
        busy = [await turns.take(Subject("experiment", each), partial(self._advance, each, now)) for each in ids]
        if any(busy):
            self.services.bus.publish(bus.EXPERIMENTS)

    async def _unsettled(self) -> Sequence[str]:
        async with self.services.control.read() as session:
            return await rows.unsettled(session)

    async def _advance(self, experiment_id: str, now: datetime) -> bool:
        """Take turns while they find something to do. Returns whether there may be more."""
        for _ in range(MOST_TURNS):
            if not await advance(self.services, experiment_id, now):
                return False
        return True


async def step_once(services: Services, now: datetime) -> None:
    await ExperimentKeeper(services, DueLooks(services)).step_once(now)
