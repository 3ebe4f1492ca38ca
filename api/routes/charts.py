"""Charts of projects: list, create, change, delete, put in order."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from paceline.api.deps import Member, ReadSession, ServicesDep, WriteSession
from paceline.api.deps import RevisionMatch as IfMatch
from paceline.api.schemas.charts import ChangedChart, Chart, ChartOrder, NewChart
from paceline.api.services.jobs import charts as service
from paceline.api.services.jobs.idempotency import Once

router = APIRouter(prefix="/training/charts", tags=["jobs"])


@router.get("")
async def list_charts(project: Annotated[str, Query(min_length=1, max_length=100)], session: ReadSession) -> list[Chart]:
    """The charts of a project, in their order."""
    return await service.of_project(session, project)


@router.post("", status_code=201)
async def create_chart(
    body: NewChart, response: Response, caller: Member, services: ServicesDep, once: Once, session: WriteSession
) -> Chart:
    """Add a chart behind the others of its project, for everybody."""

    async def create() -> Chart:
        return await service.create(session, body, caller, services.now())

    chart = await once.run(session, body, Chart, create)
    response.headers["ETag"] = service.etag(chart)
    return chart


@router.put("/order")
async def order_charts(body: ChartOrder, caller: Member, session: WriteSession) -> list[Chart]:
    """Put the charts of a project in another order."""
    return await service.reorder(session, body)


@router.get("/{chart_id}")
async def get_chart(chart_id: str, response: Response, session: ReadSession) -> Chart:
    """Return one chart, with its revision."""
    chart = service.describe(await service.find(session, chart_id))
    response.headers["ETag"] = service.etag(chart)
    return chart


@router.put("/{chart_id}")
async def change_chart(
    chart_id: str,
    body: ChangedChart,
    response: Response,
    caller: Member,
    services: ServicesDep,
    session: WriteSession,
    if_match: IfMatch = None,
) -> Chart:
    """Change a chart's name and what it draws."""
    chart = await service.change(session, chart_id, body, if_match, caller, services.now())
    response.headers["ETag"] = service.etag(chart)
    return chart


@router.delete("/{chart_id}", status_code=204)
async def delete_chart(chart_id: str, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None) -> None:
    """Delete a chart for everybody."""
    await service.delete(session, chart_id, if_match, caller, services.now())
