"""Keeps failures of jobs and nodes apart: each has its turn, and one that raises is reported once and tried again later."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.core.troubles import LONGEST_RETRY_SECONDS, Subject
from paceline.api.services.lifecycle import events
from paceline.api.services.lifecycle.state_change import StaleStateError
from paceline.db.errors import DatabaseBusyError
from paceline.db.repositories import aged

logger = logging.getLogger(__name__)
#: The database is away or busy: that is no job's fault, and the loop tries all of its step again.
DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeoutError, DatabaseBusyError, OSError, TimeoutError)
MOST_CHARACTERS = 500
TRIED_AGAIN = f"tried again, at least every {LONGEST_RETRY_SECONDS:.0f} s"

#: Subjects that share a turn: their transaction holds the writer's turn for a fraction of the time that a request may take.
MOST_TOGETHER = 32

T = TypeVar("T")
Item = TypeVar("Item")
Phase = Callable[[datetime], Awaitable[object]]


@dataclass(frozen=True)
class Inspection(Generic[T]):
    """Whether a subject wants a turn. `result` None: it wants none, or looking raised."""

    is_wanted: bool
    result: T | None = None


@dataclass(frozen=True)
class PhaseTurns:
    """The turns of jobs and nodes in one task within one step of a loop. `task` in words: what cannot be done where it raises.
    `outlook`: what becomes of that. `passes_over`: work that raised is not tried again, so a later success does not make up for it, and each
    job or node is told of once."""

    services: Services
    task: str
    now: datetime
    outlook: str = TRIED_AGAIN
    passes_over: bool = False

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
        if not self.passes_over:
            self.services.troubles.over(self.task, subject)
        return result

    async def forget_ended_jobs(self) -> None:
        """Forget the jobs that failed and have ended since."""
        if failed := self.services.troubles.failed(self.task):
            async with self.services.control.read() as session:
                self.services.troubles.forget_all_but(self.task, failed - await aged.ended_jobs(session, failed))

    def peek(self, subject: Subject, work: Callable[[], T | None]) -> Inspection[T]:
        """Look whether a subject wants a turn: `work` returns for what, or None. One that wants none is held up by nothing; an exception is
        raised again in the turn, and told there."""
        if not self.services.troubles.is_due(self.task, subject, self.now):
            return Inspection(False)
        try:
            result = work()
        except Exception:  # noqa: BLE001 - see above
            return Inspection(True)
        if result is None:
            self.services.troubles.over(self.task, subject)
        return Inspection(result is not None, result)

    async def take_together(
        self,
        items: Sequence[Item],
        subject_of: Callable[[Item], Subject],
        work: Callable[[Sequence[Item]], Awaitable[int]],
        at_once: int = MOST_TOGETHER,
    ) -> int:
        """Take one turn for many, in groups of `at_once`, and return the sum of what `work` returned. Where it raises for a group, each of
        the group has a turn of its own, so that only those at fault are held up; what has failed before goes alone at once."""
        total, together = 0, list[Item]()
        for item in items:
            if self.services.troubles.has_failed(self.task, subject_of(item)):
                total += await self.take(subject_of(item), partial(work, [item])) or 0
            else:
                together.append(item)
        for first in range(0, len(together), at_once):
            total += await self._take_group(together[first : first + at_once], subject_of, work)
        return total

    async def _take_group(
        self, group: Sequence[Item], subject_of: Callable[[Item], Subject], work: Callable[[Sequence[Item]], Awaitable[int]]
    ) -> int:
        if len(group) > 1:
            try:
                return await work(group)
            except DATABASE_AWAY:
                raise
            except Exception as error:  # noqa: BLE001 - it is raised again, and told, in the turn of the one at fault
                logger.info("cannot %s for %d at once, each has a turn of its own: %s", self.task, len(group), _in_one_line(error))
        return sum([await self.take(subject_of(item), partial(work, [item])) or 0 for item in group])

    async def _log_failure(self, subject: Subject, error: Exception) -> None:
        what = _in_one_line(error)
        was_told = self.passes_over and self.services.troubles.has_failed(self.task, subject)
        if not self.services.troubles.note(self.task, subject, what, self.now) or was_told:
            return
        logger.error("%s %s is held up, the others are not: cannot %s", subject.kind, subject.id, self.task, exc_info=error)
        message = f"held up: cannot {self.task}: {what}; {self.outlook}; nothing else waits for it"
        message = message if subject.kind in ("job", "node") else f"{subject.kind} {subject.id} is {message}"  # no column names it
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
    await each_part([partial(phase, now) for phase in phases])


async def each_part(parts: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Run all parts of a step, as `each_phase` does."""
    failures: list[Exception] = []
    for part in parts:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(parts)} parts of the step failed", failures)


def _in_one_line(error: Exception) -> str:
    """The text in one line, without characters that PostgreSQL does not store."""
    said = " ".join(str(error).replace("\0", "\N{REPLACEMENT CHARACTER}").split())
    return f"{type(error).__name__}: {said}"[:MOST_CHARACTERS] if said else type(error).__name__
