"""The history: what happened, who did it and why."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Event, Job
from paceline.cli.completion import OptionalJob
from paceline.cli.exits import ExitCode
from paceline.cli.job_facts import has_ended
from paceline.cli.render.output import Format, note, print_document, print_line, table
from paceline.cli.session import Session, with_session
from paceline.cli.waiting import patient

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

PAGE, POLL_S = 200, 1.0


@with_session
def events(
    session: Session,
    job: OptionalJob = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE, help="show only the last N")] = 30,
    after: Annotated[int | None, typer.Option(min=0, help="continue after this sequence number")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with what happens; Ctrl-C ends it")] = False,
) -> None:
    """Print what happened, to a job or to everything, the oldest first; who did it and why."""
    with session.client() as client:
        job_id = None if job is None else client.job_id(job)
        path = "/events" if job_id is None else f"/training/jobs/{job_id}/events"
        found = client.get(path, tail=True, limit=limit)["items"] if after is None else _beyond(client, path, after)
        if not follow:
            session.emit(found, lambda: _table([parsed(document, Event) for document in found]))
            return
        _print(session, found)
        try:
            _follow(session, client, path, job_id, found[-1]["seq"] if found else after or 0)
        except KeyboardInterrupt:
            note("", f"detached. next: paceline events {job or ''}".rstrip())
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def _beyond(client: RestClient, path: str, after: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := client.get(path, after=after, limit=PAGE)["items"]:
        found += page
        after = page[-1]["seq"]
    return found


def _follow(session: Session, client: RestClient, path: str, job_id: str | None, after: int) -> None:
    """Print what happens from now on: for ever, or until the job has ended and all of its events are printed."""
    while True:
        ended = job_id is not None and has_ended(parsed(patient(functools.partial(client.job_document, job_id)), Job))
        for document in patient(functools.partial(_beyond, client, path, after)):
            _print(session, [document])
            after = document["seq"]
        if ended:
            return
        threading.Event().wait(POLL_S)


def _print(session: Session, documents: list[dict[str, Any]]) -> None:
    """Print events as they come: a line each, a document a line where one was asked for."""
    for document in documents:
        if session.form is Format.TABLE:
            print_line(_line(parsed(document, Event)))
        else:
            print_document(document)


def _table(found: list[Event]) -> str:
    rows = [
        [f"{event.time.astimezone():%m-%d %H:%M:%S}", event.type, event.actor.name if event.actor else "", _story(event)] for event in found
    ]
    return table(["TIME", "TYPE", "WHO", "WHAT"], rows, empty="nothing has happened", fit=True)


def _line(event: Event) -> str:
    return f"{event.time.astimezone():%H:%M:%S} {event.type} {_story(event)}"


def _story(event: Event) -> str:
    return f"{event.message} ({event.cause})" if event.cause and event.cause not in event.message else event.message
