"""What an experiment found: its analysis, and the report of it in every format."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from paceline.api.deps import Member, ReadSession, ServicesDep
from paceline.api.errors import HeadOnlyError
from paceline.api.routes.artifacts import attachment
from paceline.api.schemas.experiments import ExperimentAnalysis
from paceline.api.services.experiments import analysis, experiments
from paceline.api.services.experiments.report.exports import MEDIA_TYPES, ExportFormat, ExportOrder, Theme, check_order, file_name
from paceline.api.services.experiments.report.figures.heat_map import HeatMapChoice
from paceline.api.services.history.heavy_reads import HeavyReads

router = APIRouter(prefix="/experiments", tags=["experiments"])
_JSON = "application/json"
_FILES: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind.split(";")[0]: {} for kind in MEDIA_TYPES.values()}, "description": "the file"}
}


async def heavy_reads(request: Request) -> HeavyReads:
    return cast(HeavyReads, request.app.state.heavy_reads)


Reads = Annotated[HeavyReads, Depends(heavy_reads)]


@router.post("/{experiment_id}/analyze", response_model=ExperimentAnalysis)
async def analyze_experiment(experiment_id: str, _: Member, services: ServicesDep, reads: Reads) -> Response:
    """Analyze the experiment on what there is, at any time and as often as you like. The answer is stored."""
    return Response(await analysis.make(services, reads, experiment_id), media_type=_JSON)


@router.get("/{experiment_id}/analysis", response_model=ExperimentAnalysis)
async def experiment_analysis(experiment_id: str, session: ReadSession) -> Response:
    """The newest analysis, as it was stored."""
    return Response(await analysis.newest(session, experiment_id), media_type=_JSON)


@router.get("/{experiment_id}/export", response_class=Response, responses=_FILES)
async def export_experiment(
    experiment_id: str,
    request: Request,
    services: ServicesDep,
    reads: Reads,
    format: Annotated[ExportFormat, Query(description="html: one page that needs nothing else; svg, png: one figure")] = "html",
    figure: Annotated[
        str | None, Query(max_length=40, description="scaling, throughput, step_time, memory, loss, heatmap or pareto")
    ] = None,
    theme: Annotated[Theme, Query(description="of an svg or png; the page follows its reader's")] = "light",
    x: Annotated[str | None, Query(max_length=200, description="of the heat map: the axis across, such as world_size")] = None,
    y: Annotated[str | None, Query(max_length=200, description="of the heat map: the axis down")] = None,
    value: Annotated[str | None, Query(max_length=40, description="of the heat map: a figure, such as samples_per_second")] = None,
) -> Response:
    """The report of the newest analysis as a file."""
    order = ExportOrder(format, figure, theme, HeatMapChoice(x, y, value))
    check_order(order)
    async with services.control.read() as session:
        name = (await experiments.find(session, experiment_id)).name
    if getattr(request.state, "head", False):
        raise HeadOnlyError
    body = await analysis.report(services, reads, experiment_id, order)
    return Response(body, media_type=MEDIA_TYPES[format], headers=attachment(file_name(name, order)))
