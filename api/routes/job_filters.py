"""The query parameters that say which jobs a list has."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends, Query, Request

from paceline.api.core import lists
from paceline.api.errors import ProblemError
from paceline.api.services.jobs import jobs
from paceline.db.repositories.jobs import JobFilter

Among = Literal["exclude", "include", "only"]
_AMONG: dict[Among, bool | None] = {"exclude": False, "include": None, "only": True}


async def _job_filter(
    request: Request,
    status: Annotated[str | None, Query(description="states, comma-separated")] = None,
    project: Annotated[str | None, Query(description="projects, comma-separated", max_length=1000)] = None,
    user: Annotated[str | None, Query(description="names of users who submitted jobs, comma-separated", max_length=1000)] = None,
    model: Annotated[str | None, Query(description="gpt, hf, mlp, resnet, entrypoint or script; comma-separated", max_length=1000)] = None,
    name: Annotated[str | None, Query(description="the whole name", max_length=63)] = None,
    q: Annotated[
        str | None,
        Query(
            description="part of a name, description, label (as key=value) or note; or the beginning of an id, 6 characters at least",
            max_length=200,
        ),
    ] = None,
    experiment: Annotated[str | None, Query(description="id or name of an experiment: the jobs of its trials", max_length=200)] = None,
    trials: Annotated[Among, Query(description="whether trials of experiments are among them")] = "include",
    created_after: Annotated[datetime | None, Query(description="with a time zone; submitted then or later")] = None,
    created_before: Annotated[datetime | None, Query(description="with a time zone; submitted before then")] = None,
    archived: Annotated[Among, Query(description="whether archived jobs are among them")] = "exclude",
) -> JobFilter:
    for parameter, time in (("created_after", created_after), ("created_before", created_before)):
        if time is not None and time.tzinfo is None:
            raise ProblemError("invalid_parameter", f"{parameter}={time.isoformat()} has no time zone; write {time.isoformat()}Z")
    return JobFilter(
        states=jobs.parse_states(status),
        projects=tuple(lists.words(project) or ()),
        users=tuple(lists.words(user) or ()),
        models=tuple(lists.words(model) or ()),
        labels=jobs.parse_labels(request.query_params.multi_items()),
        name=name,
        text=q,
        experiment=experiment,
        created_after=created_after,
        created_before=created_before,
        trials=_AMONG[trials],
        archived=_AMONG[archived],
    )


#: Labels are filtered with `label.KEY=VALUE`.
JobFilterQuery = Annotated[JobFilter, Depends(_job_filter)]
