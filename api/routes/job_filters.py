"""The query parameters that say which jobs a list has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends, Query, Request

from paceline.api.core import lists
from paceline.api.errors import ProblemError
from paceline.cluster.states import JobState
from paceline.db.repositories.jobs import JobFilter
from paceline.training.spec.job import LABEL_NAME

#: The prefix of a query's parameter for a label, whose name follows, and the most of them.
LABEL, MOST_LABELS = "label.", 16
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
        states=_parse_states(status),
        projects=tuple(lists.words(project) or ()),
        users=tuple(lists.words(user) or ()),
        models=tuple(lists.words(model) or ()),
        labels=_parse_labels(request.query_params.multi_items()),
        name=name,
        text=q,
        experiment=experiment,
        created_after=created_after,
        created_before=created_before,
        trials=_AMONG[trials],
        archived=_AMONG[archived],
    )


def _parse_states(status: str | None) -> tuple[JobState, ...]:
    names = [name.strip() for name in (status or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in set(JobState)]
    if unknown:
        raise ProblemError("invalid_parameter", f"status={unknown[0]} is no state of a job; use {', '.join(JobState)}")
    return tuple(JobState(name) for name in names)


def _parse_labels(parameters: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    labels = tuple((name.removeprefix(LABEL), value) for name, value in parameters if name.startswith(LABEL))
    wrong = next((name for name, _ in labels if not re.fullmatch(LABEL_NAME.pattern, name)), None)
    if wrong is not None:
        raise ProblemError("invalid_parameter", f"label.{wrong}: no label is called so; a name has {LABEL_NAME.rule}")
    if len(labels) > MOST_LABELS:
        raise ProblemError("invalid_parameter", f"{len(labels)} labels are asked for; the limit is {MOST_LABELS}")
    return labels


#: Labels are filtered with `label.KEY=VALUE`.
JobFilterQuery = Annotated[JobFilter, Depends(_job_filter)]
