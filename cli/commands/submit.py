"""Submit a job, and follow it to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli import exits
from cli.output import fields, note
from cli.plan_choices import chosen
from cli.session import Session, with_session
from cli.views import Job, view

if TYPE_CHECKING:
    from cli.client import Client

Spec = Annotated[str, typer.Argument(metavar="FILE", help="job spec in YAML or JSON; '-' reads stdin", show_default=False)]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="change one field of the spec; repeatable")]


@with_session
def submit(
    session: Session,
    file: Spec,
    changes: Changes = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print its log until it ends; exit 10 failed, 11 cancelled")] = False,
    plan_hash: Annotated[str | None, typer.Option(help="refuse if the plan with this hash no longer holds")] = None,
) -> None:
    """Submit the job in FILE."""
    from cli.documents import read_spec

    spec = read_spec(file, changes or [])
    with session.client() as client:
        document = client.create("/training/jobs", spec, plan_hash=plan_hash)
        job = view(document, Job)
        if not follow:
            session.emit(document, lambda: fields(summary(job)))
            session.next_steps(f"paceline logs -f {job.name}", f"paceline show {job.name}")
            return
        note(f"submitted {job.name} ({job.id}); Ctrl-C stops following, not the job")
        follow_to_end(session, client, job.id)


def follow_to_end(session: Session, client: Client, job_id: str) -> None:
    """Print the log as it comes; then the job as it ended, and exit by its state."""
    from cli.commands.logs import print_log

    try:
        print_log(session, client, job_id, to_stderr=not session.for_people)
    except KeyboardInterrupt:
        note("", f"detached; the job goes on. next: paceline logs -f {job_id}")
        raise typer.Exit(exits.ExitCode.INTERRUPTED) from None
    document = client.job_document(job_id)
    job = view(document, Job)
    if not session.for_people:
        session.emit(document, str)
    note(ending(job))
    raise typer.Exit(exits.for_job_state(job.state))


def ending(job: Job) -> str:
    """One sentence on how a job stands."""
    if job.failure is not None and job.state == "failed":
        failure = job.failure
        return f"{job.name} failed: {failure.what} on rank {failure.rank} ({failure.node_name}): {failure.said}"
    reason = f" ({job.end_reason})" if job.end_reason and job.end_reason != job.state else ""
    step = f" at step {job.progress.step}" if job.progress.step or job.model != "script" else ""  # a script need not tell of steps
    return f"{job.name} {job.state}{reason}{step}"


def summary(job: Job) -> list[tuple[str, str]]:
    pairs = [("job", job.id), ("name", job.name), ("state", job.state), ("world", str(job.world_size)), *chosen(job.choice)]
    return [*pairs, ("waiting", job.pending.text)] if job.pending else pairs
