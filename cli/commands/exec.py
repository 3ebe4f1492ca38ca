"""Hands on: a command or a shell beside a rank, and a rank's live output."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from paceline.cli import exits
from paceline.cli.commands.logs import LinePrinter, print_log
from paceline.cli.completion import JobRef
from paceline.cli.errors import UsageProblem
from paceline.cli.exits import ExitCode
from paceline.cli.render.output import Format, note
from paceline.cli.session import Session, with_session
from paceline.cli.settings import terminal_type


@with_session
def run_beside(
    session: Session,
    job: JobRef,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="what to run; none: a shell", show_default=False)
    ] = None,
    rank: Annotated[int, typer.Option("--rank", "-r", min=0, help="beside this rank")] = 0,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="for the habit of -it: standard input is always passed on")
    ] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="give it a terminal of this one's size (a shell gets one anyway)")] = False,
) -> None:
    """Run a command beside a rank: on its node, as its user, with its variables, directory and limits. Its exit code is this command's."""
    from paceline.cli.exec_client import Terminal, run_session
    from paceline.cluster.exec_frames import StartCommand

    if not session.for_people:
        raise UsageProblem("exec prints what its command prints, and no document", "leave --json and --output out")
    words = tuple(command or ())
    tty = tty or (not words and os.isatty(0) and sys.stdout.isatty())
    rows, columns = Terminal.size()
    term = terminal_type() if tty else ""
    with session.client() as client:
        start = StartCommand(rank=rank, command=words, tty=tty, rows=rows, columns=columns, term=term)
        code = run_session(client, client.job_id(job), start)
    raise typer.Exit(code)


@with_session
def attach(
    session: Session,
    job: JobRef,
    rank: Annotated[int, typer.Option("--rank", "-r", min=0, help="this rank's output")] = 0,
    tail: Annotated[int, typer.Option("--tail", "-n", min=1, max=2000, help="begin with the newest N lines")] = 20,
) -> None:
    """Show a rank's live output until the job ends; Ctrl-C detaches and the job goes on. For a shell beside a rank: paceline exec JOB."""
    from paceline.cli.follow import LogFilter

    if not session.for_people:
        raise UsageProblem("attach is for people", f"for programs: paceline logs {job} --follow --rank {rank} --output jsonl")
    with session.client() as client:
        job_id = client.job_id(job)
        note(f"attached to rank {rank}; Ctrl-C detaches, and the job goes on")
        try:
            print_log(LinePrinter(Format.TABLE), client, job_id, only=LogFilter(rank=str(rank)), tail=tail)
        except KeyboardInterrupt:
            note("", f"detached; the job goes on. next: paceline attach {job} --rank {rank}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        ended = client.job(job_id)
    note(f"{ended.name} is {ended.state}")
    raise typer.Exit(exits.for_job_state(ended.state))
