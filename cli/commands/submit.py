"""Submit a job, and follow it to its end."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import exits
from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.commands.logs import LinePrinter, print_log
from paceline.cli.ending import ending
from paceline.cli.job_facts import warning_lines
from paceline.cli.render.output import fields, note
from paceline.cli.render.plan_choices import chosen
from paceline.cli.session import Session, with_session
from paceline.cli.waiting import patient, wait_for_slots

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

Spec = Annotated[str, typer.Argument(metavar="FILE", help="job spec in YAML or JSON; '-' reads stdin", show_default=False)]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="change one field of the spec; repeatable")]

TimeLimit = Annotated[
    str | None, typer.Option(metavar="TIME", help="how long it may hold slots, as 90s, 1h30m or 2d; then it saves and ends, failed")
]
Workdir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="send this folder along: the ranks start in a copy of it, without what .gitignore and .pacelineignore leave out"
    ),
]


@with_session
def submit(
    session: Session,
    file: Spec,
    changes: Changes = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print its log until it ends; exit 10 failed, 11 cancelled")] = False,
    time_limit: TimeLimit = None,
    name: Annotated[str | None, typer.Option(help="of the job; instead of that in FILE")] = None,
    workdir: Workdir = None,
    plan_hash: Annotated[str | None, typer.Option(help="refuse if the plan with this hash no longer holds")] = None,
) -> None:
    """Submit the job in FILE."""
    from paceline.cli.code_bundle import with_code
    from paceline.cli.documents import whole_refusals
    from paceline.cli.job_folder import in_its_folder, require_files
    from paceline.cli.requirement_files import with_requirements

    named = {"time_limit": time_limit, "name": name}
    with session.client() as client:
        with whole_refusals(client, "/training/plan") as reader:
            spec = reader.read(file, changes or []) | {key: value for key, value in named.items() if value}
            if workdir is not None:
                spec = with_code(client, spec, workdir)
            else:
                spec = in_its_folder(spec, file)
                require_files(client, spec, file)
                spec = with_requirements(spec, file)
            document = client.create("/training/jobs", spec, plan_hash=plan_hash)
        job = parsed(document, Job)
        note(*warning_lines(job))
        if not follow:
            session.emit(document, lambda: fields([*summary(job), ("page", client.job_page(job.id))]))
            session.next_steps(f"paceline logs -f {job.name}", f"paceline show {job.name}")
            return
        note(f"submitted {job.name} ({job.id}): {client.job_page(job.id)}", "Ctrl-C stops following, not the job")
        follow_to_end(session, client, job)


def follow_to_end(session: Session, client: RestClient, job: Job) -> None:
    """Print why the job waits, and its log as it comes; then the job as it ended, and exit by its state."""
    try:
        wait_for_slots(client, job, "stops following, not the job")
        print_log(LinePrinter(session.form, to_stderr=not session.for_people), client, job.id)
    except KeyboardInterrupt:
        note("", f"detached; the job goes on. next: paceline logs -f {job.id}")
        raise typer.Exit(exits.ExitCode.INTERRUPTED) from None
    document = patient(functools.partial(client.job_document, job.id))
    job = parsed(document, Job)
    if not session.for_people:
        session.emit(document, str)
    note(ending(job))
    raise typer.Exit(exits.for_job_state(job.state))


def summary(job: Job) -> list[tuple[str, str]]:
    pairs = [("job", job.id), ("name", job.name), ("state", job.state), ("world", str(job.world_size)), *chosen(job.choice)]
    return [*pairs, ("waiting", job.pending.text)] if job.pending else pairs
