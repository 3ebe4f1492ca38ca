"""Tells channels their nodes' assignments: questions of the same moment are answered together, from a handful of queries.

A nudge may be lost between replicas, so it looks at all nodes every few seconds, and nudges the channels of those that changed. Every
channel looking at its own rows would cost more than all else that idle nodes cost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from paceline.api.core import bus
from paceline.api.core.background import in_background
from paceline.api.core.context import Services
from paceline.api.core.gathering import Gathering
from paceline.api.services.scheduling.assignments import desired_of
from paceline.cluster.protocol import Desired
from paceline.db.errors import DatabaseError
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories.nodes import Mark

logger = logging.getLogger(__name__)
MOST_AT_ONCE = 64


@dataclass(frozen=True)
class AssignmentQuestion:
    node_id: str
    answered_revision: int  # what the agent has been told, and has answered


@dataclass(frozen=True)
class AssignmentAnswer:
    """The answer to a channel. `mark` None: there is no such node. `desired` None: the agent has answered the newest revision."""

    mark: Mark | None
    desired: Desired | None


class AssignmentWatch:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[str, Mark] = {}
        self._gathering: Gathering[AssignmentQuestion, AssignmentAnswer] = Gathering("assignments", self._answer, MOST_AT_ONCE)

    async def news(self, node_id: str, answered_revision: int) -> AssignmentAnswer:
        """The news for a channel, as the rows are now, or were a moment after this was called."""
        return await self._gathering.ask(node_id, AssignmentQuestion(node_id, answered_revision))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._gathering.running(), in_background("assignment-watch", self._run):
            yield

    async def look(self) -> None:
        """Nudge, in this process, the channels of all nodes whose mark has changed since the last look."""
        async with self._services.control.read() as session:
            found = await node_rows.marks(session)
        changed = [node_id for node_id, mark in found.items() if self._known.get(node_id) != mark]
        self._services.bus.nudge([bus.node(node_id) for node_id in (*changed, *(self._known.keys() - found.keys()))])
        self._known = found

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._services.settings.observe_seconds)
            try:
                await self.look()
            except (DatabaseError, SQLAlchemyError) as error:
                logger.warning("the nodes' rows could not be looked at; they are looked at again soon: %s", error)

    async def _answer(self, questions: Sequence[AssignmentQuestion]) -> list[AssignmentAnswer]:
        """Answer questions. The marks are read first: should an assignment change meanwhile, its new revision is still to come."""
        async with self._services.control.read() as session:
            marks = await node_rows.marks(session, [each.node_id for each in questions])
            behind = [mark for each in questions if (mark := marks.get(each.node_id)) and mark.desired_revision > each.answered_revision]
            desired = await desired_of(session, behind)
        return [AssignmentAnswer(marks.get(each.node_id), desired.get(each.node_id)) for each in questions]
