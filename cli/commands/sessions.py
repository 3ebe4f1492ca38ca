"""Browsers that are signed in to the dashboard: list them, end their sessions."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import BrowserSession
from paceline.cli.help import CommandGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import table
from paceline.cli.session import Session, with_session

app = CommandGroup(help="List signed-in browsers, and sign them out.", no_args_is_help=True)

#: How a session was opened, in words.
SIGNED_IN_BY = {"login_link": "login link", "api_key": "API key", "oidc": "single sign-on"}


@app.command("list")
@with_session
def list_sessions(session: Session) -> None:
    """List browsers that are signed in, the newest first. An admin gets those of all users."""
    with session.client() as client:
        documents = client.pages("/sessions")
    session.emit(documents, lambda: _table([parsed(document, BrowserSession) for document in documents]))


@app.command()
@with_session
def end(
    session: Session, session_id: Annotated[str, typer.Argument(metavar="SESSION", help="id", show_default=False)], yes: Yes = False
) -> None:
    """Sign a browser out, now. At a terminal it asks first."""
    with session.client() as client:
        if not yes:
            confirm(f"The browser of session {session_id} will be signed out. To come back it has to sign in again.", "Sign out?")
        client.delete(f"/sessions/{quote(session_id, safe='')}")
    session.emit({"id": session_id, "ended": True}, lambda: f"session {session_id} has ended")


def _table(found: list[BrowserSession]) -> str:
    rows = [
        [
            each.user_name,
            each.device or formats.UNKNOWN,
            each.address or formats.UNKNOWN,
            _how(each),
            formats.since(each.last_used_at),
            formats.day(each.expires_at),
            each.id,
        ]
        for each in found
    ]
    return table(["USER", "BROWSER", "ADDRESS", "SIGNED IN BY", "LAST USED", "EXPIRES", "ID"], rows, empty="no browser is signed in")


def _how(each: BrowserSession) -> str:
    words = SIGNED_IN_BY.get(each.signed_in_by or "", formats.UNKNOWN)
    return f"{words} {each.key_prefix}" if each.key_prefix else words
