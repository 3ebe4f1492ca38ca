"""Analyzes experiments once they have ended, so that nobody has to ask: one in a step, in a worker process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from paceline.api.core.context import Services
from paceline.api.core.troubles import Subject
from paceline.api.errors import ProblemError
from paceline.api.loops.due_looks import ANALYSIS_DELAY, DueLooks
from paceline.api.services.experiments import analysis
from paceline.api.services.history.heavy_reads import HeavyReads
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.db.repositories import experiment_analyses

INTERVAL_SECONDS = 2.0


@dataclass
class Analyst:
    """Keeps nothing from step to step: an experiment without an analysis since its end is due, whoever made its trials end."""

    services: Services
    reads: HeavyReads
    looks: DueLooks

    async def step_once(self, now: datetime) -> None:
        due = await self._due(now) if (await self.looks.look(now)).analyses else []
        turns = PhaseTurns(self.services, "analyze it", now)
        self.services.troubles.forget_all_but(turns.task, due)
        for experiment_id in due:
            if await turns.take(Subject("experiment", experiment_id), partial(self._analyze, experiment_id)):
                return  # the next one in the next step, so that a coordinator that is to stop need not wait for all

    async def _due(self, now: datetime) -> list[str]:
        async with self.services.control.read() as session:
            return await experiment_analyses.due(session, now - ANALYSIS_DELAY)

    async def _analyze(self, experiment_id: str) -> bool:
        try:
            await analysis.make(self.services, self.reads, experiment_id)
        except ProblemError as error:
            if error.code != "busy":  # users' questions come first: the next step tries again
                raise
        return True
