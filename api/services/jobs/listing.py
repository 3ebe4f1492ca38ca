"""Lists of jobs, and the values by which they can be filtered."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import paging
from paceline.api.schemas.job_lists import JobFacets, JobPage
from paceline.api.services.jobs import descriptions, notices
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories.jobs import JobFilter, JobOrder

#: How many values of each facet are told, and how many sets of labels are looked at for them.
MOST_VALUES, MOST_LABEL_SETS = 200, 2000


async def page(session: AsyncSession, wanted: JobFilter, order: JobOrder, limit: int, now: datetime, *, count: bool) -> JobPage:
    rows = await job_rows.page(session, wanted, order, limit + 1)
    told = await notices.of_jobs(session, rows[:limit], now)
    found = paging.page_of(rows, limit, lambda job: descriptions.summarize(job, told[job.id]), lambda job: _sort_key(job, order.column))
    if not count:
        return JobPage(items=found.items, next_cursor=found.next_cursor)
    total, before = await job_rows.counts(session, wanted, order)
    return JobPage(items=found.items, next_cursor=found.next_cursor, total=total, first=before + 1 if found.items else None)


def _sort_key(job: JobRow, column: str) -> tuple[paging.Key, str]:
    value = getattr(job, column)
    return (value.isoformat() if isinstance(value, datetime) else value, job.id)


def order_of(sort: str, cursor: str | None) -> JobOrder:
    """The order that `sort` asks for, from where the cursor is."""
    column, descending = sort.removeprefix("-"), sort.startswith("-")
    key = paging.decode(cursor, int if column == "priority" else str, str)
    if key is None:
        return JobOrder(column, descending)
    return JobOrder(column, descending, (paging.moment(key[0]) if column == "created_at" else key[0], str(key[1])))


async def facets(session: AsyncSession) -> JobFacets:
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for each in await job_rows.label_sets(session, MOST_LABEL_SETS):
        for name, value in each.items():
            labels[name].add(value)
    projects, users, models = [
        await job_rows.facets(session, column, MOST_VALUES) for column in (JobRow.project, JobRow.created_by, JobRow.model)
    ]
    return JobFacets(
        projects=list(projects),
        users=list(users),
        models=list(models),
        labels={name: sorted(labels[name])[:MOST_VALUES] for name in sorted(labels)},
    )
