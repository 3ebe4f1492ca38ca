"""Charts of projects: everybody sees them, and every member may change them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.charts import ChangedChart, Chart, ChartDefinition, ChartOrder, NewChart
from paceline.api.services.jobs.revisions import check_version
from paceline.api.services.lifecycle import events
from paceline.db.models.charts import ChartRow
from paceline.db.repositories import charts as rows

#: The most charts of one project, which are drawn on one page.
MOST_CHARTS = 100


def describe(row: ChartRow) -> Chart:
    return Chart(
        id=row.id,
        project=row.project,
        name=row.name,
        definition=ChartDefinition.model_validate(row.definition),
        revision=row.revision,
        created_by=row.created_by,
        updated_by=row.updated_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def etag(chart: Chart) -> str:
    return f'"{chart.revision}"'


async def of_project(session: AsyncSession, project: str) -> list[Chart]:
    return [describe(row) for row in await rows.of_project(session, project)]


async def find(session: AsyncSession, chart_id: str) -> ChartRow:
    """Return a chart. Raises not_found."""
    row = await rows.get(session, chart_id)
    if row is None:
        raise not_found("chart", chart_id)
    return row


async def create(session: AsyncSession, wanted: NewChart, caller: Caller, now: datetime) -> Chart:
    """Put a chart behind the others of its project. Raises a problem where there are MOST_CHARTS."""
    if len(await rows.of_project(session, wanted.project)) >= MOST_CHARTS:
        raise ProblemError("invalid_request", f"project {wanted.project} has {MOST_CHARTS} charts, which is the limit; remove one first")
    row = ChartRow(
        project=wanted.project,
        name=wanted.name.strip(),
        definition=wanted.definition.model_dump(mode="json"),
        position=await rows.last_position(session, wanted.project) + 1,
        revision=1,
        created_by=caller.name,
        created_by_id=caller.user_id,
        updated_by=caller.name,
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    await session.flush()
    return describe(row)


async def change(session: AsyncSession, chart_id: str, wanted: ChangedChart, if_match: str | None, caller: Caller, now: datetime) -> Chart:
    """Change a chart. Raises not_found, and precondition_failed where somebody has changed it before."""
    row = await _locked(session, chart_id, if_match)
    row.name, row.definition = wanted.name.strip(), wanted.definition.model_dump(mode="json")
    row.revision += 1
    row.updated_by, row.updated_at = caller.name, now
    await session.flush()
    return describe(row)


async def delete(session: AsyncSession, chart_id: str, if_match: str | None, caller: Caller, now: datetime) -> None:
    """Delete a chart. Raises not_found and precondition_failed."""
    row = await _locked(session, chart_id, if_match)
    await session.delete(row)
    message = f"{caller.name} deleted the chart {row.name} of project {row.project}"
    data = {"project": row.project, "name": row.name, "definition": row.definition}
    await events.record(session, type="chart.deleted", actor=caller.actor, cause="request", message=message, data=data, time=now)


async def reorder(session: AsyncSession, wanted: ChartOrder) -> list[Chart]:
    """Put a project's charts in another order. Ids of charts that are gone are left out, so that two people may do so at once."""
    found = {row.id: row for row in await rows.of_project(session, wanted.project, lock=True)}
    named = [found.pop(chart_id) for chart_id in dict.fromkeys(wanted.ids) if chart_id in found]
    for position, row in enumerate([*named, *found.values()]):
        row.position = position
    await session.flush()
    return await of_project(session, wanted.project)


async def _locked(session: AsyncSession, chart_id: str, if_match: str | None) -> ChartRow:
    row = await rows.get_locked(session, chart_id)
    if row is None:
        raise not_found("chart", chart_id)
    check_version("chart", row.revision, if_match)
    return row
