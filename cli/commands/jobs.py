"""Lists and shows jobs, and changes what they should do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paceline.cli import exits, formats
from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.commands.submit import ending
from paceline.cli.completion import job_references
from paceline.cli.details import details
from paceline.cli.errors import UsageProblem
from paceline.cli.examples import first_spec
from paceline.cli.job_changes import change_job
from paceline.cli.job_facts import TERMINAL_STATES, has_ended, is_script
from paceline.cli.output import table
from paceline.cli.session import Session, with_session
from paceline.cli.waiting import wait_for_state

JobRef = Annotated[str, typer.Argument(metavar="JOB", help="id or name", show_default=False, autocompletion=job_references)]


@with_session
def jobs(
    session: Session,
    status: Annotated[str | None, typer.Option(help="only these states, e.g. running,queued")] = None,
    project: Annotated[str | None, typer.Option(help="only this project")] = None,
    search: Annotated[str | None, typer.Option("--search", "-q", help="text in the name")] = None,
    sort: Annotated[str, typer.Option(help="created_at, name or priority; '-' in front: descending")] = "-created_at",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="at most this many")] = 20,
) -> None:
    """List jobs, the newest first."""
    with session.client() as client:
        documents = client.pages("/training/jobs", limit, status=status, project=project, q=search, sort=sort)
    session.emit(documents, lambda: _table([parsed(document, Job) for document in documents]))


@with_session
def show(session: Session, job: JobRef) -> None:
    """Show one job: why it waits or failed, state, progress, ranks, where its time went, and what happened to it."""
    with session.client() as client:
        document = client.job_document(client.job_id(job))
        session.emit(document, lambda: details(client, parsed(document, Job)))


@with_session
def pause(session: Session, job: JobRef) -> None:
    """Save a checkpoint, stop the ranks and free the slots. A script saves at SIGTERM, and says so (script.saves_on_sigterm)."""
    _act(session, job, "pause", f"paceline resume {job}")


@with_session
def resume(session: Session, job: JobRef) -> None:
    """Continue a paused job at its next step; a script is started again, and goes on from what it has saved."""
    _act(session, job, "resume", f"paceline logs -f {job}")


@with_session
def resize(
    session: Session,
    job: JobRef,
    nodes: Annotated[
        int | None, typer.Argument(metavar="NODES", min=1, help="so many times resources.slots_per_node ranks", show_default=False)
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="in place of NODES: the number of ranks; for jobs that ask for slots, or for nodes")
    ] = None,
) -> None:
    """Set how many ranks a job should have; one that closes up grows and shrinks while it runs, an elastic script is started again."""
    if (nodes is None) == (slots is None):
        raise UsageProblem("resize takes NODES or --slots N, one of them", f"for example: paceline resize {job} --slots 6")
    _act(session, job, "resize", f"paceline show {job}", {"nodes": nodes} if slots is None else {"slots": slots})


@with_session
def cancel(session: Session, job: JobRef) -> None:
    """Stop a job for good; its checkpoints stay."""
    cancelled = _act(session, job, "cancel", None)
    if not is_script(cancelled):  # what a script has saved is not known
        session.next_steps(f"paceline checkpoints {job}")


@with_session
def wait(
    session: Session,
    job: JobRef,
    state: Annotated[str | None, typer.Option("--for", help="a state; default: any end")] = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="seconds; then exit 8")] = 3600.0,
) -> None:
    """Wait for a job to end, or to reach a state; exits 10 when it failed, 11 when it was cancelled."""
    wanted = {state} if state else set(TERMINAL_STATES)
    with session.client() as client:
        document = wait_for_state(client, client.job_id(job), wanted, timeout)
    now = parsed(document, Job)
    session.emit(document, lambda: ending(now))
    raise typer.Exit(exits.ExitCode.DONE if now.state == state else exits.for_job_state(now.state))


def _act(session: Session, reference: str, verb: str, following: str | None, body: Any = None) -> Job:
    """Change a job, and print it. `following`: the command that comes next. Returns the job as it is now."""
    with session.client() as client:
        document = change_job(client, client.job_id(reference), verb, body)
    job = parsed(document, Job)
    session.emit(document, lambda: f"{job.name}: {verb} asked for; it is {job.state}")
    if following:
        session.next_steps(following)
    return job


def _table(jobs: list[Job]) -> str:
    headers = ["NAME", "STATE", "STEP", "LOSS", "TOKENS/S", "ETA", "WORLD", "AGE", "ID"]
    rows = [
        [
            job.name,
            _state(job),
            formats.steps(job.progress.step, job.progress.total_steps),
            formats.number(job.progress.loss),
            formats.quantity(job.progress.tokens_per_second),
            formats.duration(None if has_ended(job) else job.progress.eta_seconds),
            str(job.last_world_size or job.world_size),
            formats.age(job.created_at),
            job.id,
        ]
        for job in jobs
    ]
    return table(headers, rows, empty=f"no jobs; submit one with 'paceline submit {first_spec() or 'FILE'}'")


def _state(job: Job) -> str:
    """The state with the reasons to look at the job: "running (seems to hang, node b is silent)"."""
    reasons = [job.pending.code] if job.pending is not None else []
    reasons += ["seems to hang"] if job.hang is not None else []
    reasons += [f"node {node.node_name} is silent" for node in job.silent_nodes]
    return f"{job.state} ({', '.join(reasons)})" if reasons else job.state
