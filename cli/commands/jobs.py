"""Lists, shows and opens jobs, and waits for them."""

from __future__ import annotations

import sys
import threading
import webbrowser
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, NoReturn

import typer

from paceline.cli import exits, job_filters
from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.completion import JobRef, experiment_references, job_references
from paceline.cli.details import details
from paceline.cli.ending import ending
from paceline.cli.errors import UsageProblem
from paceline.cli.examples import first_spec
from paceline.cli.job_facts import JOB_STATES, TERMINAL_STATES, has_ended
from paceline.cli.moments import seconds
from paceline.cli.render import formats
from paceline.cli.render.output import clear_screen, coloured, note, plain, print_line, table
from paceline.cli.session import Session, with_session
from paceline.cli.settings import has_display
from paceline.cli.waiting import patient, wait_for_state

WATCH_SECONDS = 2.0


@with_session
def jobs(
    session: Session,
    status: Annotated[str | None, typer.Option(help="only these states, e.g. running,queued")] = None,
    project: Annotated[str | None, typer.Option(help="only these projects, e.g. text,vision")] = None,
    user: Annotated[str | None, typer.Option(help="only jobs that these users have submitted")] = None,
    model: Annotated[str | None, typer.Option(help="only these models: gpt, hf, mlp, resnet, entrypoint or script")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="only with this label; repeatable")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="only what was submitted since, as 12h, 2d or 2026-11-20")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="only archived jobs, which are left out otherwise")] = False,
    search: Annotated[str | None, typer.Option("--search", "-q", help="text in name, description, labels or notes")] = None,
    sort: Annotated[str, typer.Option(help="created_at, name or priority; '-' in front: descending")] = "-created_at",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="at most this many")] = 20,
    experiment: Annotated[
        str | None, typer.Option(help="only trials of this experiment, by name or id", autocompletion=experiment_references)
    ] = None,
    trials: Annotated[bool, typer.Option("--trials/--no-trials", help="whether trials of experiments are listed")] = True,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="show the list again every 2 seconds until Ctrl-C")] = False,
) -> None:
    """List jobs, the newest first."""
    if watch and not (session.for_people and sys.stdout.isatty()):
        raise UsageProblem(
            "--watch draws on a terminal, as a table", "for scripts there are 'paceline jobs --json' and 'paceline wait JOB'"
        )
    filters = {"status": status, "project": project, "user": user, "model": model, "q": search, "experiment": experiment, "sort": sort}
    filters |= {"created_after": job_filters.since(since, datetime.now(UTC)), "archived": "only" if archived else None}
    filters |= {"trials": None if trials else "exclude"}
    filters |= job_filters.label_parameters(label or [])
    with session.client() as client:
        if watch:
            _watch(lambda: _table([parsed(document, Job) for document in client.pages("/training/jobs", limit, **filters)]))
        documents = client.pages("/training/jobs", limit, **filters)
    session.emit(documents, lambda: _table([parsed(document, Job) for document in documents]))


def _watch(draw: Callable[[], str]) -> NoReturn:
    """Draw the same screen again and again. Ctrl-C exits with 130."""
    try:
        while True:
            text = patient(draw)
            clear_screen()
            print_line(f"{coloured(plain(text))}\n\nEvery {WATCH_SECONDS:g} s. Ctrl-C ends it.", colours=True)
            threading.Event().wait(WATCH_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(exits.ExitCode.INTERRUPTED) from None


@with_session
def show(session: Session, job: JobRef) -> None:
    """Show one job: its state and why, progress, ranks, where its time went, and its incidents."""
    with session.client() as client:
        document = client.job_document(client.job_id(job))
        session.emit(document, lambda: details(client, parsed(document, Job)))


@with_session
def open_dashboard(
    session: Session,
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="default: the list of jobs", show_default=False, autocompletion=job_references),
    ] = None,
) -> None:
    """Open a job's page in the browser, and print its address."""
    if job is None:
        url = f"{session.settings.url}/jobs"
    else:
        with session.client() as client:
            url = client.job_page(client.job_id(job))
    if has_display():
        webbrowser.open(url)
    session.emit({"url": url}, lambda: url)
    session.next_steps("paceline login-link, if the browser is not signed in")


def _states(text: str | None) -> set[str]:
    """The states of `--for`; without it, those in which a job has ended."""
    if text is None:
        return set(TERMINAL_STATES)
    states = {part.strip() for part in text.split(",")}
    if unknown := sorted(states - set(JOB_STATES)):
        raise UsageProblem(f"--for {text}: {unknown[0]!r} is not a state of a job", f"states: {', '.join(JOB_STATES)}")
    return states


@with_session
def wait(
    session: Session,
    job: JobRef,
    state: Annotated[
        str | None,
        typer.Option("--for", metavar="STATE[,STATE]", help="one of these states; default: any end", autocompletion=lambda: JOB_STATES),
    ] = None,
    timeout: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", show_default="1h", help="how long, as 90, 10m or 2h; then exit 8")
    ] = 3600.0,
) -> None:
    """Wait for a job to end, or to reach a state. Exits 10 if it failed, 11 if it was cancelled."""
    from paceline.cli.follow import is_arriving

    wanted = _states(state)
    with session.client() as client:
        document = wait_for_state(client, client.job_id(job), wanted, timeout)
        now = parsed(document, Job)
        if has_ended(now) and is_arriving(client, now.id):
            note(f"note: the end of its log is still arriving. next: paceline logs -f {job}")
    session.emit(document, lambda: ending(now))
    if state is None:
        raise typer.Exit(exits.for_job_state(now.state))
    if now.state not in wanted:
        note(f"error: {now.name} has ended and can't be {' or '.join(sorted(wanted))} any more")
        raise typer.Exit(exits.for_job_state(now.state) or exits.ExitCode.CONFLICT)


def _table(jobs: list[Job]) -> str:
    headers = ["NAME", "STATE", "STEP", "LOSS", "THROUGHPUT", "RAN FOR", "ETA", "RANKS", "USER", "AGE", "ID"]
    rows = [
        [
            job.name,
            _state(job),
            formats.steps(job.progress.step, job.progress.total_steps),
            formats.number(job.progress.loss),
            _throughput(job),
            formats.duration(job.ran_seconds if job.started_at else None),
            formats.duration(None if has_ended(job) or job.state == "paused" else job.progress.eta_seconds),
            str(job.last_world_size or job.world_size),
            job.created_by,
            formats.age(job.created_at),
            job.id,
        ]
        for job in jobs
    ]
    return table(headers, rows, empty=f"no jobs; submit one with 'paceline submit {first_spec() or 'FILE'}'")


def _throughput(job: Job) -> str:
    """One rate, as the dashboard's list has it: tokens where the model reads some."""
    tokens, samples = job.progress.tokens_per_second, job.progress.samples_per_second
    return formats.throughput(tokens, samples if tokens is None else None)


def _state(job: Job) -> str:
    """The state with the reasons to look at the job: "running (seems to hang, node b is silent)"."""
    reasons = [job.pending.code] if job.pending is not None else []
    reasons += ["seems to hang"] if job.hang is not None else []
    reasons += [f"node {node.node_name} is silent" for node in job.silent_nodes]
    return f"{job.state} ({', '.join(reasons)})" if reasons else job.state
