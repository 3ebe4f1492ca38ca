"""Which phases of a scheduler's step have anything to do: one statement, for each to which some would answer that there is nothing."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import exists, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import JobState
from paceline.db.models.incidents import OPEN_CAUSE, IncidentRow
from paceline.db.models.jobs import UNDECIDED, WAITING, JobRow
from paceline.db.repositories.jobs import QUIET


class OpenWork(NamedTuple):
    """Whether there is anything for the phases of a scheduler's step."""

    undecided: bool  # a job may move by itself
    waiting: bool  # a job waits for slots, at its start or between two generations
    quiet: bool  # a running job has a rank that is quiet, or seems to hang
    open_causes: bool  # the cause of an incident is not final


#: Made once: a statement costs more to put together than this one takes to answer.
_OPEN_WORK = select(
    exists(select(JobRow.id).where(UNDECIDED)),
    exists(select(JobRow.id).where(or_(WAITING, JobRow.state == JobState.RECOVERING))),
    exists(QUIET),
    exists(select(IncidentRow.id).where(OPEN_CAUSE)),
)


async def open_work(session: AsyncSession) -> OpenWork:
    """Look which phases have anything to do."""
    return OpenWork(*map(bool, (await session.execute(_OPEN_WORK)).one()))
