"""What the coordinator keeps, and deleting what ended jobs have recorded."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from cli import formats
from cli.completion import job_references
from cli.errors import CliError, UsageProblem
from cli.exits import ExitCode
from cli.output import fields, note, table
from cli.session import Session, with_session
from cli.views import Job

JobRefs = Annotated[list[str], typer.Argument(metavar="JOB...", help="ids or names", show_default=False, autocompletion=job_references)]


class NotEndedError(CliError):
    exit_code = ExitCode.CONFLICT


@with_session
def delete(
    session: Session,
    jobs: JobRefs,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="its checkpoints as well")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Delete what ended jobs have recorded: points, curves, log lines and traces. The jobs themselves stay listed."""
    with session.client() as client:
        chosen = [client.job(client.job_id(reference)) for reference in jobs]
        _require_ended(chosen)
        if not yes:
            _confirm(chosen, checkpoints)
        documents = [client.delete(f"/training/jobs/{job.id}/data", checkpoints=checkpoints) for job in chosen]
    words = {"removing": "being deleted", "removed": "deleted"}
    lines = [f"{job.name}: its data is {words[document['state']]}" for job, document in zip(chosen, documents, strict=True)]
    session.emit(documents, lambda: "\n".join(lines))
    session.next_steps("paceline storage")


def _require_ended(jobs: list[Job]) -> None:
    """Before anything is deleted of any of them."""
    for job in jobs:
        if not job.ended:
            raise NotEndedError(
                f"{job.name} ({job.id}) is {job.state}: only what ended jobs recorded can be deleted", f"'paceline cancel {job.id}' ends it"
            )


def _confirm(jobs: list[Job], checkpoints: bool) -> None:
    names = ", ".join(f"{job.name} ({job.state}, {job.progress.step:,} steps)" for job in jobs)
    loss = "points, curves, log lines and traces" + (", and the checkpoints," if checkpoints else "")
    if not sys.stdin.isatty():
        raise UsageProblem(f"this deletes the {loss} of {names} for good", "repeat it with --yes")
    note(f"This deletes the {loss} of {names} for good." + ("" if checkpoints else " Checkpoints stay."))
    typer.confirm("Delete?", abort=True, err=True)


@with_session
def storage(session: Session) -> None:
    """Show what is kept of jobs, how much it takes, and how much disk is left."""
    with session.client() as client:
        document = client.get("/cluster/storage")
    session.emit(document, lambda: _report(document))
    if any(job["ended"] for job in document["largest_jobs"]):
        session.next_steps("paceline delete JOB")


def _report(document: Any) -> str:
    kinds = table(
        ["KIND", "ROWS", "SIZE"],
        [[each["kind"], f"{each['rows']:,}", formats.quantity(float(each["bytes"]), "B")] for each in document["kinds"]],
    )
    jobs = table(
        ["JOB", "STATE", "SIZE", "ID"],
        [[job["name"], job["state"], formats.quantity(float(job["bytes"]), "B"), job["job_id"]] for job in document["largest_jobs"]],
        empty="nothing is stored of any job",
    )
    parts = [fields(_totals(document)), kinds, jobs, "\n".join(document["policy"])]
    return "\n\n".join(parts + ([document["hint"]] if document["hint"] else []))


def _totals(document: Any) -> list[tuple[str, str]]:
    limit, disk = document["limit_bytes"], document["disk"]
    of_limit = f" of {formats.quantity(float(limit), 'B')}" if limit else ", without a limit"
    file = f"{formats.quantity(float(document['database_bytes']), 'B')}, {formats.quantity(float(document['free_in_database_bytes']), 'B')} of it free"
    pairs = [("stored", formats.quantity(float(document["stored_bytes"]), "B") + of_limit), ("database", file)]
    if disk is not None:
        low = ": LOW, points, log lines and files wait on their nodes" if disk["low"] else ""
        free, total, mark = (formats.quantity(float(disk[name]), "B") for name in ("free_bytes", "total_bytes", "low_bytes"))
        pairs.append(("disk", f"{free} free of {total}, the watermark is {mark}{low}"))
    return pairs
