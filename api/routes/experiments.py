"""Experiments: post, plan, list, look at, pause, resume, cancel, run a trial longer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse

from paceline.api.core import paging
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import Member, ReadSession, ServicesDep, Viewer, WriteSession
from paceline.api.deps import RevisionMatch as IfMatch
from paceline.api.middleware.spec_body import SpecRoute
from paceline.api.schemas.common import Page
from paceline.api.schemas.experiments import Experiment, ExperimentPlan, ExperimentSummary, ExtendRequest, Trial
from paceline.api.schemas.jobs import Job
from paceline.api.services.experiments import expansion, experiments, extension, plan, views
from paceline.api.services.jobs import descriptions, ownership, revisions
from paceline.api.services.jobs.idempotency import Once
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.db.models.experiments import ExperimentRow
from paceline.db.repositories import experiments as rows

router = APIRouter(prefix="/experiments", tags=["experiments"], route_class=SpecRoute)
Sort = Literal["created_at", "-created_at", "name", "-name"]
IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match", description="`*`: the experiment is only created; 409 already_exists where its project has one of this name"
    ),
]


@router.get("/spec-schema")
async def experiment_schema() -> dict[str, Any]:
    """The JSON Schema of an experiment spec."""
    return ExperimentSpec.model_json_schema()


@router.post("", status_code=201, responses={200: {"model": Experiment, "description": "there was one of this project and name"}})
async def post_experiment(
    body: ExperimentSpec, response: Response, caller: Member, services: ServicesDep, once: Once, if_none_match: IfNoneMatch = None
) -> Experiment:
    """Start an experiment. The body is its spec, as JSON or as YAML (application/yaml). One of the same project and name gets the new grid: what it
    has run already stays, what failed or was cancelled runs anew, and what the grid no longer has is cancelled."""
    grid = await expansion.expanded(services, body)
    async with services.write(request=True) as session:

        async def create() -> Experiment:
            row = await experiments.post(session, body, grid, caller, services, is_new=if_none_match == "*")
            return await views.describe(session, row, services.now())

        experiment = await once.run(session, body, Experiment, create)
    response.status_code = 201 if experiment.revision == 1 else 200
    response.headers["ETag"] = _etag(experiment)
    response.headers["Location"] = f"/api/v1/experiments/{experiment.id}"
    return experiment


@router.post("/plan")
async def plan_experiment(body: ExperimentSpec, caller: Viewer, services: ServicesDep) -> ExperimentPlan:
    """The trials that a spec comes to, and which of them would be refused. Changes nothing."""
    return await plan.plan_experiment(services, body)


@router.get("", response_model=Page[ExperimentSummary])
async def list_experiments(
    session: ReadSession,
    services: ServicesDep,
    cursor: Cursor = None,
    limit: Limit = 50,
    status: Annotated[str | None, Query(description="states, comma-separated")] = None,
    project: str | None = None,
    q: Annotated[
        str | None, Query(description="part of a name, or at least 6 characters from the beginning of an id", max_length=200)
    ] = None,
    sort: Sort = "-created_at",
    fields: Fields = None,
) -> Page[ExperimentSummary] | JSONResponse:
    wanted = rows.ExperimentFilter(views.parse_states(status), project, q)
    column, descending = sort.removeprefix("-"), sort.startswith("-")
    found = await rows.page(session, wanted, sort=column, descending=descending, after=_after(cursor, column), limit=limit + 1)
    sums = await views.sums_of(session, found, services.now())
    page = paging.page_of(found, limit, lambda row: views.summarize(row, sums[row.id]), lambda row: _sort_key(row, column))
    return paging.only(page, ExperimentSummary, fields)


def _sort_key(row: ExperimentRow, column: str) -> tuple[paging.Key, str]:
    value = getattr(row, column)
    return (value.isoformat() if isinstance(value, datetime) else value, row.id)


def _after(cursor: str | None, column: str) -> tuple[Any, str] | None:
    key = paging.decode(cursor, str, str)
    return None if key is None else (paging.moment(key[0]) if column == "created_at" else key[0], str(key[1]))


@router.get("/{experiment_id}")
async def get_experiment(experiment_id: str, response: Response, session: ReadSession, services: ServicesDep) -> Experiment:
    return await _answer(session, response, await experiments.find(session, experiment_id), services.now())


@router.get("/{experiment_id}/trials", response_model=Page[Trial])
async def list_trials(
    experiment_id: str, session: ReadSession, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None
) -> Page[Trial] | JSONResponse:
    """The trials of the present grid, by index."""
    await experiments.find(session, experiment_id)
    key = paging.decode(cursor, int)
    found = await rows.trial_page(session, experiment_id, None if key is None else int(key[0]), limit + 1)
    page = paging.page_of(found, limit, views.describe_trial, lambda known: (known.trial.index,))
    return paging.only(page, Trial, fields)


@router.put("/{experiment_id}/pause")
async def pause_experiment(
    experiment_id: str, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Experiment:
    """Start no more trials, and pause those that run: each saves and frees its slots. Scripts that cannot be paused run to their end."""
    row = await experiments.find(session, experiment_id, lock=True)
    await experiments.pause(session, row, if_match, caller.actor, services.now())
    return await _answer(session, response, row, services.now())


@router.put("/{experiment_id}/resume")
async def resume_experiment(
    experiment_id: str, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Experiment:
    """Go on: what was paused with the experiment continues first."""
    row = await experiments.find(session, experiment_id, lock=True)
    await experiments.resume(session, row, if_match, caller.actor, services.now())
    return await _answer(session, response, row, services.now())


@router.delete("/{experiment_id}")
async def cancel_experiment(
    experiment_id: str, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Experiment:
    """Cancel all trials that have not ended. By its owner or an admin."""
    row = await experiments.find(session, experiment_id, lock=True)
    ownership.require_owner_or_admin_of(caller, "experiment", row, services.settings, "cancel it")
    await experiments.cancel(session, row, if_match, caller.actor, services.now())
    return await _answer(session, response, row, services.now())


@router.post("/{experiment_id}/extend", status_code=201)
async def extend_trial(
    experiment_id: str, body: ExtendRequest, response: Response, caller: Member, services: ServicesDep, once: Once, session: WriteSession
) -> Job:
    """Run a trial longer: submit a new job that goes on from the newest checkpoint of the best trial, or of the one that is named. It is an ordinary
    job; the experiment stays as it is."""
    row = await experiments.find(session, experiment_id)

    async def extend() -> Job:
        job = await extension.extend(session, row, body, caller.actor, services.now())
        return await descriptions.describe(session, job, services.now())

    job = await once.run(session, body, Job, extend)
    response.headers["ETag"] = revisions.etag(job)
    response.headers["Location"] = f"/api/v1/training/jobs/{job.id}"
    return job


async def _answer(session: ReadSession, response: Response, row: ExperimentRow, now: datetime) -> Experiment:
    experiment = await views.describe(session, row, now)
    response.headers["ETag"] = _etag(experiment)
    return experiment


def _etag(experiment: Experiment) -> str:
    return f'"{experiment.revision}"'
