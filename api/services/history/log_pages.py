"""Pages of log lines, and the whole log as text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.schemas.jobs import LogEntry, LogPage
from paceline.db.repositories import logs as repository
from paceline.db.repositories.logs import LogColumns, LogQuery

#: Lines that are read and written at once: more would hold the event loop for too long.
DOWNLOAD_CHUNK = 500


def describe(row: LogColumns) -> LogEntry:
    document = row._asdict() | {"time": datetime.fromtimestamp(row.time, UTC)}
    return LogEntry.model_validate(document)


async def page(
    session: AsyncSession, job_id: str, *, after: int, before: int | None, limit: int, tail: bool, where: LogQuery, complete: bool
) -> LogPage:
    """A page of log lines. `before` and `tail` take the newest lines of their range, else the oldest. `complete`: no line can be added
    any more."""
    as_of = await repository.newest_seq(session, job_id)
    up_to = as_of if before is None else min(as_of, before - 1)
    rows = await repository.page(session, job_id, after=after, up_to=up_to, limit=limit, newest=tail or before is not None, where=where)
    at_end = before is None and (tail or len(rows) < limit)
    next_after = max(after, as_of) if at_end else rows[-1].seq if rows else after
    return LogPage(items=[describe(row) for row in rows], next_after=next_after, complete=complete and at_end)


async def as_text(services: Services, job_id: str) -> AsyncIterator[str]:
    """Every line there is now, in chunks; no transaction stays open while the client reads slowly."""
    async with services.metrics.read() as session:
        up_to = await repository.newest_seq(session, job_id)
    after = 0
    while after < up_to:
        async with services.metrics.read() as session:
            rows = await repository.page(session, job_id, after=after, up_to=up_to, limit=DOWNLOAD_CHUNK)
        if not rows:
            return
        after = rows[-1].seq
        yield "".join(_line(row) for row in rows)


def _line(row: LogColumns) -> str:
    moment = datetime.fromtimestamp(row.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{moment} g{row.generation} rank {row.rank} {row.level:<7} {row.text}\n"
