"""Logs of a job: page, search, follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands.jobs import JobRef
from paceline.cli.exits import ExitCode
from paceline.cli.formats import printed_line
from paceline.cli.output import Format, note, print_line
from paceline.cli.session import Session, with_session

if TYPE_CHECKING:
    from paceline.cli.api_types import LogEntry
    from paceline.cli.client import RestClient
    from paceline.cli.follow import LogFilter


@with_session
def logs(
    session: Session,
    job: JobRef,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="until the job and its log have ended; Ctrl-C detaches")] = False,
    rank: Annotated[str | None, typer.Option(help="only these ranks, e.g. 0 or 0,3")] = None,
    level: Annotated[str | None, typer.Option(help="only this level")] = None,
    grep: Annotated[str | None, typer.Option(metavar="TEXT", help="only lines with this text, searched by the coordinator")] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=1, max=2000, help="begin with the newest N lines")] = None,
    after: Annotated[int, typer.Option(min=0, help="resume behind this position (seq)")] = 0,
) -> None:
    """Print a job's log; the end of a followed job is the end of its log."""
    from paceline.cli.follow import LogFilter

    only = LogFilter(rank=rank, grep=grep, level=level)
    with session.client() as client:
        job_id = client.job_id(job)
        try:
            print_log(session, client, job_id, only=only, tail=tail, after=after, follow=follow)
        except KeyboardInterrupt:
            note("", f"detached; the job goes on. next: paceline logs -f {job}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def print_log(
    session: Session,
    client: RestClient,
    job_id: str,
    *,
    only: LogFilter | None = None,
    tail: int | None = None,
    after: int = 0,
    follow: bool = True,
    to_stderr: bool = False,
) -> None:
    from paceline.cli.follow import LogFilter, follow_log, log_pages, read_page

    only = only or LogFilter()
    if tail is not None:
        page = read_page(client, job_id, after, only, tail=True, limit=tail)
        _print(page.items, session.form, to_stderr)
        after = page.next_after
    if follow:
        _print(follow_log(client, job_id, after, only), session.form, to_stderr)
    elif tail is None:
        _print(log_pages(client, job_id, after, only), session.form, to_stderr)


def _print(entries: Iterable[LogEntry], form: Format, to_stderr: bool) -> None:
    """Print lines as they come; --json and --output yaml collect one document, jsonl prints a document a line."""
    show = note if to_stderr else print_line
    if to_stderr or form is Format.TABLE:
        for entry in entries:
            show(printed_line(entry))
        return
    import msgspec

    if form is Format.JSONL:
        for entry in entries:
            print_line(msgspec.json.encode(_document(entry)).decode())
        return
    from paceline.cli.output import emit

    emit([msgspec.to_builtins(_document(entry)) for entry in entries], form, str)


def _document(entry: LogEntry) -> dict[str, object]:
    """Return the line in the order of fields that scripts have always read."""
    return {name: getattr(entry, name) for name in ("seq", "rank", "time", "level", "text", "generation")}
