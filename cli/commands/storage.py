"""Shows the coordinator's stored data, and deletes that of ended jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Checkpoint, Job, Storage
from paceline.cli.completion import job_references
from paceline.cli.errors import CliError
from paceline.cli.exits import ExitCode
from paceline.cli.job_facts import has_ended
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import fields, note, table
from paceline.cli.session import Session, with_session

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

JobRefs = Annotated[list[str], typer.Argument(metavar="JOB...", help="ids or names", show_default=False, autocompletion=job_references)]


class NotEndedError(CliError):
    exit_code = ExitCode.CONFLICT


class CheckpointNeededError(CliError):
    exit_code = ExitCode.CONFLICT


@with_session
def delete(
    session: Session,
    jobs: JobRefs,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="its checkpoints as well")] = False,
    yes: Yes = False,
) -> None:
    """Delete what ended jobs have recorded: points, curves, log lines, traces, gradients, media and all files of $PACELINE_ARTIFACTS. The jobs
    themselves stay listed."""
    with session.client() as client:
        chosen = [client.job(job_id) for job_id in dict.fromkeys(client.job_id(reference) for reference in jobs)]
        _require_ended(chosen)
        if checkpoints:
            _require_free_checkpoints(client, chosen)
        if not yes:
            confirm(_loss(chosen, checkpoints), "Delete?", needs_yes=True)
        documents = _delete_each(client, chosen, checkpoints)
    words = {"removing": "being deleted", "removed": "deleted"}
    lines = [f"{_described(job)}: its data is {words[document['state']]}" for job, document in zip(chosen, documents, strict=True)]
    session.emit(documents, lambda: "\n".join(lines))
    session.next_steps("paceline storage")


def _delete_each(client: RestClient, jobs: list[Job], checkpoints: bool) -> list[dict[str, Any]]:
    """Delete job by job. Where one is refused, the refusal is preceded by the names of those that are gone."""
    documents: list[dict[str, Any]] = []
    for job in jobs:
        try:
            documents.append(client.delete(f"/training/jobs/{job.id}/data", checkpoints=checkpoints))
        except CliError:
            deleted, kept = ("; ".join(map(_described, some)) for some in (jobs[: len(documents)], jobs[len(documents) :]))
            if deleted:
                note(f"deleted: {deleted}", f"not deleted: {kept}")
            raise
    return documents


def _require_ended(jobs: list[Job]) -> None:
    """Raise NotEndedError where any of the jobs has not ended, before anything is deleted."""
    for job in jobs:
        if not has_ended(job):
            raise NotEndedError(
                f"{job.name} ({job.id}) is {job.state}: only what ended jobs recorded can be deleted", f"'paceline cancel {job.id}' ends it"
            )


def _require_free_checkpoints(client: RestClient, jobs: list[Job]) -> None:
    """Raise CheckpointNeededError where any of the jobs has a checkpoint that is pinned or needed, before anything is deleted."""
    for job in jobs:
        for document in client.pages(f"/checkpoints/jobs/{job.id}"):
            checkpoint = parsed(document, Checkpoint)
            reasons = [f"job {user.job_name} ({user.job_id}) was started from it" for user in checkpoint.used_by]
            reasons += ["it is pinned"] if checkpoint.pinned else []
            if reasons and checkpoint.state != "deleting":
                raise CheckpointNeededError(
                    f"nothing was deleted: checkpoint {checkpoint.id} of step {checkpoint.step} of {job.name} stays, {' and '.join(reasons)}",
                    _way_out(checkpoint),
                )


def _way_out(checkpoint: Checkpoint) -> str:
    """The command after which a checkpoint may go. One that a job was started from is not freed by unpinning it."""
    if checkpoint.used_by:
        return f"'paceline checkpoints delete {checkpoint.id} --yes' deletes it all the same"
    return f"'paceline checkpoints unpin {checkpoint.id}' leaves it to the deletion"


def _described(job: Job) -> str:
    """The name of a job, with its id where other jobs have the same name."""
    return f"{job.name} {job.id}, submitted {formats.age(job.created_at)} ago"


def _loss(jobs: list[Job], checkpoints: bool) -> str:
    names = ", ".join(f"{_described(job)} ({job.state}, {job.progress.step:,} steps)" for job in jobs)
    loss = "points, curves, log lines, traces, gradients, media and all files of $PACELINE_ARTIFACTS"
    also, rest = (", and the checkpoints,", "") if checkpoints else ("", " Checkpoints would stay.")
    return f"This would delete the {loss}{also} of {names} for good.{rest}"


@with_session
def storage(session: Session) -> None:
    """Show what is stored of jobs, and how much disk is left."""
    with session.client() as client:
        document = client.get("/cluster/storage")
    kept = parsed(document, Storage)
    session.emit(document, lambda: _report(kept))
    if any(job.ended for job in kept.largest_jobs):
        session.next_steps("paceline delete JOB")


def _report(kept: Storage) -> str:
    kinds = table(["KIND", "ROWS", "SIZE"], [[each.kind, f"{each.rows:,}", formats.quantity(each.bytes, "B")] for each in kept.kinds])
    jobs = table(
        ["JOB", "STATE", "SIZE", "ID"],
        [[job.name, job.state, formats.quantity(job.bytes, "B"), job.job_id] for job in kept.largest_jobs],
        empty="nothing is stored of any job",
    )
    parts = [fields(_totals(kept)), kinds, jobs, "\n".join(kept.policy)]
    return "\n\n".join(parts + ([kept.hint] if kept.hint else []))


def _totals(kept: Storage) -> list[tuple[str, str]]:
    of_limit = f" of {formats.quantity(kept.limit_bytes, 'B')}" if kept.limit_bytes else ", without a limit"
    file = f"{formats.quantity(kept.database_bytes, 'B')}, {formats.quantity(kept.free_in_database_bytes, 'B')} of it free"
    pairs = [("stored", formats.quantity(kept.stored_bytes, "B") + of_limit), ("database", file)]
    if kept.disk is not None:
        low = ": LOW, points, log lines and files wait on their nodes" if kept.disk.low else ""
        free, total, mark = (formats.quantity(size, "B") for size in (kept.disk.free_bytes, kept.disk.total_bytes, kept.disk.low_bytes))
        pairs.append(("disk", f"{free} free of {total}, the watermark is {mark}{low}"))
    return pairs
