"""Pages of log lines, and the whole log as text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.schemas.jobs import LogEntry, LogPage
from paceline.api.services.history.log_patterns import LinePattern
from paceline.db.repositories import logs as repository
from paceline.db.repositories.logs import LogColumns, LogQuery

#: Lines that are read and written at once: more would hold the event loop for too long.
DOWNLOAD_CHUNK = 500
#: A page of a regular expression ends after so many lines, in chunks of these: the database cannot search for it.
MOST_SCANNED, SCAN_CHUNK = 100_000, 5_000
#: Matching lines on a page with context, which is looked up for each.
MOST_WITH_CONTEXT = 100
EVERYTHING = LogQuery()


@dataclass(frozen=True)
class LogRange:
    """The page that is asked for: the oldest `limit` lines after `after`, or the newest ones, before `before`."""

    after: int = 0
    before: int | None = None
    limit: int = 500
    tail: bool = False

    @property
    def newest(self) -> bool:
        return self.tail or self.before is not None


@dataclass(frozen=True)
class LogSearch:
    """The lines that are asked for. `context`: so many lines of the same rank before and after each."""

    where: LogQuery = EVERYTHING
    pattern: LinePattern | None = None
    context: int = 0


class _Found(NamedTuple):
    """Lines that match, and the `seq` as far as which they are all of them; None: to the end of the range."""

    lines: list[LogColumns]
    reached: int | None


def describe(row: LogColumns, *, context: bool = False) -> LogEntry:
    overwrites = row.text.startswith("\r")
    moment = datetime.fromtimestamp(row.time, UTC)
    return LogEntry.model_validate(
        row._asdict() | {"time": moment, "text": row.text.removeprefix("\r"), "overwrites": overwrites, "context": context}
    )


async def from_line(session: AsyncSession, job_id: str, within: LogRange, number: int) -> LogRange:
    """The range from the line with this number on: of a log with fewer lines, the empty one at its end."""
    seq = await repository.seq_of_line(session, job_id, number)
    return replace(within, after=await repository.newest_seq(session, job_id) if seq is None else seq - 1)


async def page(
    session: AsyncSession, job_id: str, within: LogRange, search: LogSearch, *, complete: bool = False, ended: bool = False
) -> LogPage:
    """A page of log lines. `complete`: no line can be added any more. `ended`: the job has ended."""
    as_of = await repository.newest_seq(session, job_id)
    up_to = as_of if within.before is None else min(as_of, within.before - 1)
    limit = min(within.limit, MOST_WITH_CONTEXT) if search.context else within.limit
    found = await _find(session, job_id, within, up_to, limit, search)
    at_end = within.before is None and (within.tail or found.reached is None)
    if at_end:
        next_after = max(within.after, as_of)
    else:
        next_after = found.lines[-1].seq if within.newest and found.lines else within.after if within.newest else found.reached or 0
    return LogPage(
        items=await _with_context(session, job_id, found.lines, search.context),
        next_after=next_after,
        next_before=found.reached if within.newest else within.after + 1 if within.after else None,
        at_end=at_end,
        arriving=ended and not complete,
        complete=complete and at_end,
    )


async def _find(session: AsyncSession, job_id: str, within: LogRange, up_to: int, limit: int, search: LogSearch) -> _Found:
    """Search in one query, or for a regular expression chunk by chunk, in threads: that takes time, and the coordinator goes on."""
    after, newest, where, pattern = within.after, within.newest, search.where, search.pattern
    if pattern is None:
        rows = await repository.page(session, job_id, after=after, up_to=up_to, limit=limit, newest=newest, where=where)
        return _Found(rows, _edge(rows, newest) if len(rows) == limit else None)
    lines: list[LogColumns] = []
    reached = up_to + 1 if newest else after
    for _ in range(MOST_SCANNED // SCAN_CHUNK):
        rows = await repository.page(session, job_id, after=after, up_to=up_to, limit=SCAN_CHUNK, newest=newest, where=where)
        hits = await asyncio.to_thread(pattern.matching, rows)
        lines = [*hits, *lines] if newest else [*lines, *hits]
        if len(lines) >= limit:
            lines = lines[-limit:] if newest else lines[:limit]
            return _Found(lines, _edge(lines, newest))
        if len(rows) < SCAN_CHUNK:
            return _Found(lines, None)
        reached = _edge(rows, newest)
        after, up_to = (after, reached - 1) if newest else (reached, up_to)
    return _Found(lines, reached)


def _edge(rows: list[LogColumns], newest: bool) -> int:
    return rows[0 if newest else -1].seq


async def _with_context(session: AsyncSession, job_id: str, hits: list[LogColumns], count: int) -> list[LogEntry]:
    """The lines in order with `count` lines before and after each, those that match being no context of others."""
    beside = [await repository.before_and_after(session, job_id, hit, count) for hit in hits] if count else []
    context = {line.seq: describe(line, context=True) for lines in beside for line in lines}
    return [entry for _, entry in sorted((context | {hit.seq: describe(hit) for hit in hits}).items())]


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
        yield "".join(_line(row) for row in last_states(rows))


def last_states(rows: Iterable[LogColumns]) -> list[LogColumns]:
    """Leave out lines that a later one of the same rank overwrites, as a progress bar does."""
    kept: dict[int, LogColumns] = {}
    newest: dict[tuple[int, int], int] = {}
    for row in rows:
        if row.text.startswith("\r"):
            kept.pop(newest.get((row.generation, row.rank), 0), None)
        newest[row.generation, row.rank] = row.seq
        kept[row.seq] = row
    return list(kept.values())


def _line(row: LogColumns) -> str:
    moment = datetime.fromtimestamp(row.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = row.text.removeprefix("\r")
    return f"{moment} g{row.generation} rank {row.rank} {row.level:<7} {text}\n"
