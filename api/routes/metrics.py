"""The curves of a job's metrics."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from paceline.api.core.lists import members, numbers, require_ranks, words
from paceline.api.deps import ReadSession, ServicesDep
from paceline.api.errors import not_found
from paceline.api.routes.heavy import Reads
from paceline.api.schemas.metrics import Heatmap, JobMetrics
from paceline.api.services.history import card_curves, card_holdings, curves
from paceline.api.services.history.card_curves import CardQuestion
from paceline.api.services.history.card_heatmap import reading_of
from paceline.api.services.history.heatmap import BUSY_SECONDS
from paceline.api.services.history.history_process import HistoryQuestion
from paceline.api.services.specs.stored_specs import stored_part
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories.rank_series import Statistic
from paceline.monitoring.readings import CARD_METRICS

router = APIRouter(tags=["metrics"])
MAX_RANKS = 256
Step = Annotated[int | None, Query(ge=0, lt=1 << 53)]


@router.get("/metrics/jobs/{job_id}", response_model=JobMetrics)
async def job_metrics(
    job_id: str,
    session: ReadSession,
    services: ServicesDep,
    names: Annotated[str | None, Query(description="a,b; default: the job's own metrics")] = None,
    name: Annotated[list[str] | None, Query(description="one as it is called, beside `names`; repeatable: names may have commas")] = None,
    ranks: Annotated[str, Query(description="0,1")] = "0",
    first_step: Step = None,
    last_step: Step = None,
    buckets: Annotated[int, Query(ge=1, le=2000)] = 2000,
    cards: Annotated[
        str | None, Query(description="power_watts,utilization_percent: readings of each rank's own card; default: none")
    ] = None,
    axis: Annotated[Literal["step", "time"], Query(description="of `cards`: the job's steps, or all the time that it held them")] = "step",
) -> Response:
    job = await job_rows.get(session, job_id)
    if job is None:
        raise not_found("job", job_id)
    chosen = numbers("ranks", ranks, most=MAX_RANKS) or []
    require_ranks("ranks", chosen, max(job.world_size, await job_rows.largest_world(session, job_id)))
    card_names = members("cards", cards, CARD_METRICS) or []
    async with services.metrics.read() as points:
        found = await curves.job_metrics(
            points,
            job_id,
            wanted=None if names is None and name is None else [*(words(names) or []), *(name or [])],
            ranks=chosen,
            steps=(first_step, last_step),
            limit=buckets,
            of_own_model=stored_part(job, "model") is not None,
        )
        if card_names:
            now = services.now()
            most = min(buckets, curves.buckets_of_each(len(card_names), len(chosen)))
            asked = CardQuestion(card_names, chosen, (first_step, last_step), most, now.timestamp(), services.settings.keep.readings)
            holdings = card_holdings.of_ranks(await card_holdings.of_job(session, job, now), chosen)
            read = card_curves.by_step if axis == "step" else card_curves.by_time
            found = found.model_copy(update={"cards": await read(points, job_id, holdings, asked)})
    # A thread writes it: that of the loop would serve nobody meanwhile.
    return Response(await asyncio.to_thread(found.model_dump_json), media_type="application/json")


@router.get("/metrics/jobs/{job_id}/heatmap")
async def job_heatmap(
    job_id: str,
    reads: Reads,
    services: ServicesDep,
    name: Annotated[
        str,
        Query(
            description="one metric; busy_seconds: a step without its exposed communication, which tells the slow rank; "
            "card/sm_clock_mhz, card/power_watts, ...: a reading of each rank's own card"
        ),
    ] = BUSY_SECONDS,
    statistic: Annotated[Statistic, Query(description="of the points that share a cell; maximum shows single steps")] = Statistic.MEAN,
    first_step: Step = None,
    last_step: Step = None,
    columns: Annotated[int, Query(ge=1, le=1_000, description="at most; fewer with many ranks")] = 400,
) -> Heatmap:
    """One metric of every rank over steps, as a grid: a slow rank is a row that stands out, a stall a column."""
    details = (("statistic", statistic), ("first_step", first_step), ("last_step", last_step), ("columns", columns))
    reading = reading_of(name)
    if reading is None:
        return await reads.get(HistoryQuestion("heatmap", (job_id,), (("name", name), *details)), Heatmap)
    keep = services.settings.keep.readings
    return await reads.get(HistoryQuestion("card_heatmap", (job_id,), (("reading", reading), ("keep", keep), *details)), Heatmap)
