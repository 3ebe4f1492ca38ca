"""Logs of a job: page, search, follow."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.completion import JobRef
from paceline.cli.errors import UsageProblem
from paceline.cli.exits import ExitCode
from paceline.cli.job_facts import removal_words
from paceline.cli.moments import moment
from paceline.cli.render.formats import printed_line
from paceline.cli.render.output import Format, note, print_document, print_line, shows_colours
from paceline.cli.session import Session, with_session

if TYPE_CHECKING:
    from paceline.cli.api_types import Job, LogEntry
    from paceline.cli.client import RestClient
    from paceline.cli.follow import LogFilter


@with_session
def logs(
    session: Session,
    job: JobRef,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="until the job and its log have ended; Ctrl-C detaches")] = False,
    rank: Annotated[str | None, typer.Option(help="only these ranks, e.g. 0 or 0,3")] = None,
    level: Annotated[str | None, typer.Option(help="only these levels, e.g. error or warning,error")] = None,
    grep: Annotated[str | None, typer.Option(metavar="TEXT", help="only lines with this text, searched by the coordinator")] = None,
    regex: Annotated[bool, typer.Option("--regex", "-E", help="take the TEXT of --grep as a regular expression (RE2)")] = False,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, max=50, help="show N lines of the same rank around each match, which is marked with >")
    ] = 0,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="only lines printed from then on: 14:05, a date, or 10m ago as 10m")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="only lines printed up to then")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="print date, milliseconds and time zone of each line")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=1, max=2000, help="begin with the newest N lines")] = None,
    after: Annotated[int, typer.Option(min=0, help="continue after this sequence number")] = 0,
) -> None:
    """Print a job's log; the end of a followed job is the end of its log."""
    from paceline.cli.follow import LogFilter

    if regex and grep is None:
        raise UsageProblem("--regex needs the expression: add --grep EXPRESSION")
    now = datetime.now(UTC)
    between = {"since": moment("--since", since, now), "until": moment("--until", until, now)}
    only = LogFilter(rank=rank, grep=grep, level=level, regex=regex, context=context, **between)
    printer = LinePrinter(session.form, full_time=timestamps, mark_matches=context > 0)
    with session.client() as client:
        job_id = client.job_id(job)
        try:
            print_log(printer, client, job_id, only=only, tail=tail, after=after, follow=follow)
        except KeyboardInterrupt:
            note("", f"detached; the job goes on. next: paceline logs -f {job}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def print_log(
    printer: LinePrinter,
    client: RestClient,
    job_id: str,
    *,
    only: LogFilter | None = None,
    tail: int | None = None,
    after: int = 0,
    follow: bool = True,
) -> None:
    """Print stored lines, and with `follow` those to come. Says so where an ended job's log is not complete yet, and why nothing was
    printed."""
    from paceline.cli.follow import LogFilter, follow_log, is_arriving, newest_log, stored_log

    only = only or LogFilter()
    if tail is not None:
        printer.print(newest_log(client, job_id, after, only, tail, follow=follow))
    else:
        printer.print((follow_log if follow else stored_log)(client, job_id, after, only))
    if not printer.has_printed:
        _explain_nothing(client.job(job_id), only)
    if not follow and is_arriving(client, job_id):
        note(f"note: the job has ended, but the end of its log is still arriving. next: paceline logs -f {job_id}")


def _explain_nothing(job: Job, only: LogFilter) -> None:
    """Say why no line was printed: the log was deleted, or no line of it passes the filter."""
    if job.data_removal is not None:
        note(f"note: the log of {job.name} {removal_words(job.data_removal)}")
    elif any(only.parameters().values()):
        note("note: no line matches")


class LinePrinter:
    """Prints lines as they come; --json and --output yaml collect one document, jsonl prints a document a line."""

    def __init__(self, form: Format, *, to_stderr: bool = False, full_time: bool = False, mark_matches: bool = False) -> None:
        self._form = Format.TABLE if to_stderr else form
        self._show = note if to_stderr else print_line
        self._colours = shows_colours(sys.stderr if to_stderr else sys.stdout)
        self._full_time, self._mark_matches = full_time, mark_matches
        self._day: date | None = None
        self.has_printed = False

    def print(self, entries: Iterable[LogEntry]) -> None:
        entries = self._noticed(entries)
        if self._form is Format.TABLE:
            for entry in entries:
                self._print_for_people(entry)
            return
        import msgspec

        if self._form is Format.JSONL:
            for entry in entries:
                print_document(msgspec.to_builtins(_document(entry)))
            return
        from paceline.cli.render.output import emit

        emit([msgspec.to_builtins(_document(entry)) for entry in entries], self._form, str)

    def _noticed(self, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
        for entry in entries:
            self.has_printed = True
            yield entry

    def _print_for_people(self, entry: LogEntry) -> None:
        """Print a line; above the first one of a day the date and the zone, on stderr, so that what reads the lines has only these."""
        local = entry.time.astimezone()
        if not self._full_time and (self._day is None or local.date() > self._day):
            self._day = local.date()
            note(f"-- {self._day}, local time (UTC{local.isoformat()[-6:]}) --")
        mark = "" if not self._mark_matches else "  " if entry.context else "> "
        self._show(mark + printed_line(entry, full_time=self._full_time, colours=self._colours), colours=self._colours)


def _document(entry: LogEntry) -> dict[str, object]:
    """Return the line in the order of fields that scripts have always read."""
    return {name: getattr(entry, name) for name in ("seq", "rank", "time", "level", "text", "generation")}
