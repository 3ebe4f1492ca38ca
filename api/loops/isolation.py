"""Keeps failures of jobs and nodes apart: each has its turn, and one that raises is reported once and tried again later."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.core.troubles import LONGEST_RETRY_SECONDS, Subject
from paceline.api.services.lifecycle import events
from paceline.api.services.lifecycle.state_change import StaleStateError
from paceline.db.errors import DatabaseBusyError

logger = logging.getLogger(__name__)
#: The database is away or busy: that is no job's fault, and the loop tries all of its step again.
DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeoutError, DatabaseBusyError, OSError, TimeoutError)
MOST_CHARACTERS = 500

T = TypeVar("T")
Phase = Callable[[datetime], Awaitable[object]]


@dataclass(frozen=True)
class PhaseTurns:
    """The turns of jobs and nodes in one task within one step of a loop. `task` in words: what cannot be done where it raises."""

    services: Services
    task: str
    now: datetime

    async def look(self, subject: Subject, work: Callable[[], T]) -> T | None:
        """Take a turn, as `take` does, for work that needs not be awaited."""

        async def awaited() -> T:
            return work()

        return await self.take(subject, awaited)

    async def take(self, subject: Subject, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of `work`. None where it raised, or raised a moment ago and waits to be tried again."""
        if not self.services.troubles.is_due(self.task, subject, self.now):
            return None
        try:
            result = await work()
        except StaleStateError as race:
            logger.info("%s %s was changed meanwhile, and is looked at again in the next step: %s", subject.kind, subject.id, race)
            return None
        except DATABASE_AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the others have their turns
            await self._log_failure(subject, error)
            return None
        self.services.troubles.over(self.task, subject)
        return result

    async def _log_failure(self, subject: Subject, error: Exception) -> None:
        what = _in_one_line(error)
        if not self.services.troubles.note(self.task, subject, what, self.now):
            return
        logger.error("%s %s is held up, the others are not: cannot %s", subject.kind, subject.id, self.task, exc_info=error)
        message = (
            f"held up: cannot {self.task}: {what}; tried again, at least every {LONGEST_RETRY_SECONDS:.0f} s; nothing else waits for it"
        )
        async with self.services.write() as session:
            await events.record(
                session,
                type=f"{subject.kind}.held_up",
                actor=SYSTEM,
                cause=what,
                message=message,
                job_id=subject.id if subject.kind == "job" else None,
                node_id=subject.id if subject.kind == "node" else None,
                data={"task": self.task, "error": what},
                time=self.now,
            )


async def each_phase(phases: Sequence[Phase], now: datetime) -> None:
    """Run all phases; exceptions are raised once the others are done."""
    failures: list[Exception] = []
    for phase in phases:
        try:
            await phase(now)
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(phases)} parts of the step failed", failures)


def _in_one_line(error: Exception) -> str:
    """The text in one line, without characters that PostgreSQL does not store."""
    said = " ".join(str(error).replace("\0", "\N{REPLACEMENT CHARACTER}").split())
    return f"{type(error).__name__}: {said}"[:MOST_CHARACTERS] if said else type(error).__name__
