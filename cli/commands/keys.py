"""API keys: list, create, revoke."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import ApiKey
from paceline.cli.commands.users import RoleName
from paceline.cli.completion import key_ids
from paceline.cli.help import CommandGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import fields, table
from paceline.cli.session import Session, with_session

app = CommandGroup(help="List, create and revoke API keys.", no_args_is_help=True)


@app.command("list")
@with_session
def list_keys(session: Session, show_all: Annotated[bool, typer.Option("--all", help="revoked and expired ones as well")] = False) -> None:
    """List API keys and when each was last used; never the keys themselves. An admin gets those of all users."""
    now = datetime.now(UTC)
    with session.client() as client:
        documents = [document for document in client.pages("/keys") if show_all or _state(parsed(document, ApiKey), now) == "active"]
    session.emit(documents, lambda: _table([parsed(document, ApiKey) for document in documents], now))


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "active"


def _table(keys: list[ApiKey], now: datetime) -> str:
    rows = [
        [
            key.name,
            key.user_name,
            key.role,
            _state(key, now),
            formats.since(key.last_used_at, now),
            _end(key),
            key.prefix,
            key.id,
        ]
        for key in keys
    ]
    return table(["NAME", "USER", "ROLE", "STATE", "LAST USED", "EXPIRES", "PREFIX", "ID"], rows, empty="no keys")


def _end(key: ApiKey) -> str:
    """The day on which a key ends."""
    return "never" if key.expires_at is None else formats.day(key.expires_at)


@app.command()
@with_session
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="what it is for", show_default=False)],
    role: Annotated[RoleName, typer.Option(help="what it may do at most")] = RoleName.MEMBER,
    days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, help="until it expires; default: 90, or as long as the key that you use", show_default=False),
    ] = None,
) -> None:
    """Make an API key; it is shown once, with the day on which it expires."""
    with session.client() as client:
        wish = {} if days is None else {"expires_in_days": days}
        document = client.create("/keys", {"name": name, "role": role, **wish})
    made = parsed(document, ApiKey)
    session.emit(document, lambda: fields([("key", document["key"]), ("role", made.role), ("expires", _end(made)), ("id", made.id)]))


@app.command()
@with_session
def revoke(
    session: Session,
    key: Annotated[str, typer.Argument(help="id, prefix or name", show_default=False, autocompletion=key_ids)],
    yes: Yes = False,
) -> None:
    """Revoke an API key, now, with all keys that were made with it and all sessions that it signed in. At a terminal it asks first."""
    with session.client() as client:
        found = parsed(client.key(key), ApiKey)
        if not yes:
            confirm(_loss(found), "Revoke?")
        client.delete(f"/keys/{found.id}")
    session.emit({"id": found.id, "revoked": True}, lambda: f"{key} is revoked")


def _loss(key: ApiKey) -> str:
    """What ends for good with a key."""
    used = "it was never used" if key.last_used_at is None else f"it was last used {formats.since(key.last_used_at)}"
    return (
        f"The key {key.name} ({key.prefix}) of {key.user_name} will be revoked for good, with all keys that were made with it and all "
        f"sessions that it signed in; {used}."
    )
