"""Changes what jobs are called and filed under, their priority and notes; archives them and brings them back."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.completion import job_references
from paceline.cli.errors import UsageProblem
from paceline.cli.job_filters import label_pairs
from paceline.cli.render.formats import count
from paceline.cli.session import Session, with_session

JobRefs = Annotated[list[str], typer.Argument(metavar="JOB...", help="ids or names", show_default=False, autocompletion=job_references)]


@with_session
def edit(
    session: Session,
    jobs: JobRefs,
    name: Annotated[str | None, typer.Option(help="new name, of one job")] = None,
    project: Annotated[str | None, typer.Option(help="project that the jobs belong to")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=100, help="higher is placed first")] = None,
    notes: Annotated[str | None, typer.Option(help="notes, in place of those that there are")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="label to add or change; repeatable")
    ] = None,
    remove_label: Annotated[list[str] | None, typer.Option("--remove-label", metavar="KEY", help="label to remove; repeatable")] = None,
) -> None:
    """Change the name, project, priority, notes or labels of jobs, whatever they do. A new priority counts at once."""
    labels: dict[str, str | None] = {**label_pairs(label or [])}
    for key in remove_label or []:
        if labels.setdefault(key, None) is not None:
            raise UsageProblem(f"label {key} is to be changed and removed", "keep --label or --remove-label")
    asked: dict[str, Any] = {"name": name, "project": project, "priority": priority, "notes": notes, "labels": labels or None}
    changes = {field: value for field, value in asked.items() if value is not None}
    if not changes:
        raise UsageProblem("edit needs something to change", f"for example: paceline edit {jobs[0]} --priority 80 --label team=nlp")
    if name is not None and len(jobs) > 1:
        raise UsageProblem("--name is for one job", "name the jobs one by one")
    with session.client() as client:
        documents = [client.patch(f"/training/jobs/{client.job_id(job)}", changes) for job in jobs]
    session.emit(_one_or_all(documents), lambda: "\n".join(f"{job.name}: {_facts(job)}" for job in map(_job, documents)))


@with_session
def archive(session: Session, jobs: JobRefs) -> None:
    """Hide ended jobs from lists. Nothing of them is deleted; 'paceline jobs --archived' shows them."""
    _act(session, jobs, "archive", "Archived")


@with_session
def unarchive(session: Session, jobs: JobRefs) -> None:
    """Bring archived jobs back into lists."""
    _act(session, jobs, "unarchive", "Unarchived")


def _act(session: Session, jobs: list[str], verb: str, done: str) -> None:
    with session.client() as client:
        documents = [client.put(f"/training/jobs/{client.job_id(job)}/{verb}") for job in jobs]
    names = ", ".join(_job(document).name for document in documents)
    session.emit(_one_or_all(documents), lambda: f"{done} {count(len(documents), 'job')}: {names}")


def _one_or_all(documents: list[Any]) -> Any:
    return documents[0] if len(documents) == 1 else documents


def _job(document: Any) -> Job:
    return parsed(document, Job)


def _facts(job: Job) -> str:
    labels = " ".join(f"{name}={value}" for name, value in job.labels.items())
    facts = [f"project {job.project}", f"priority {job.priority}", f"labels {labels}" if labels else "no labels"]
    return ", ".join([*facts, f"notes {job.notes!r}"] if job.notes else facts)
