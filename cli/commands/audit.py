"""The audit: who did what, and from where."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import AuditEntry
from paceline.cli.render import formats
from paceline.cli.render.output import table
from paceline.cli.session import Session, with_session


@with_session
def audit(
    session: Session,
    user: Annotated[str | None, typer.Option(help="only what the user of this name did")] = None,
    action: Annotated[str | None, typer.Option(help="only this, such as key.revoked, or all about one kind of thing, such as key")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="at most this many")] = 30,
) -> None:
    """Print who did what and from where, the newest first. Only admins may."""
    with session.client() as client:
        documents = client.pages("/audit", limit, user=user, action=action)
    asked = [*([f"by {user!r}"] if user else []), *([f"about {action!r}"] if action else [])]
    empty = f"there is no entry {' '.join(asked)}; names are those of 'paceline users', actions those of 'paceline audit'"
    session.emit(
        documents, lambda: _table([parsed(document, AuditEntry) for document in documents], empty if asked else "nothing was done")
    )


def _table(entries: list[AuditEntry], empty: str) -> str:
    rows = [
        [
            f"{entry.time.astimezone():%Y-%m-%d %H:%M:%S %Z}",
            entry.user_name,
            entry.action,
            entry.address or formats.UNKNOWN,
            entry.via or formats.UNKNOWN,
            entry.message,
        ]
        for entry in entries
    ]
    return table(["TIME", "USER", "ACTION", "ADDRESS", "VIA", "WHAT"], rows, empty=empty, drop=["VIA"])
