"""Signing in: stored keys, login links for the dashboard, API keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.cli import formats
from paceline.cli.errors import UsageProblem
from paceline.cli.output import fields, table
from paceline.cli.session import Session, with_session
from paceline.cli.settings import of_stack, store, user_file

keys = typer.Typer(help="API keys: list, create, revoke.", no_args_is_help=True)


@with_session
def login(
    session: Session,
    data: Annotated[
        Path | None, typer.Option(help="data folder of a stack on this machine: its server and key are stored", show_default=False)
    ] = None,
) -> None:
    """Try a key and store it for this user, with its server: that of --api-key, PACELINE_API_KEY or this folder's stack, or that of --data."""
    if data is not None:
        if "flag" in (session.settings.server.source, session.settings.api_key.source):
            raise UsageProblem("--data says which server and which key", "leave out --server and --api-key, or --data")
        session = replace(session, settings=of_stack(data))
    key = session.settings.key
    if key is None:
        raise UsageProblem(
            "there is no key to store", "paceline login --server URL --api-key KEY; a stack on this machine: paceline login --data FOLDER"
        )
    with session.client() as client:
        me = client.get("/auth/me")
    store(user_file(), session.settings.url, key)
    session.emit(me, lambda: f"signed in to {session.settings.url} as {_identity(me)}; stored in {user_file()}")
    session.next_steps("paceline jobs")


def _identity(me: Any) -> str:
    """The user, and what the key may do: an admin's key may be one of a member."""
    article = "an" if me["role"] == "admin" else "a"
    return f"{me['name']}, with a key that may do what {article} {me['role']} may"


@with_session
def login_link(session: Session, user: Annotated[str | None, typer.Option(help="user id; default: yourself")] = None) -> None:
    """Make a single-use link that signs a browser in to the dashboard."""
    with session.client() as client:
        user_id = user or client.get("/auth/me")["user_id"]
        document = client.create(f"/users/{user_id}/login-link", {})
    session.emit(document, lambda: fields([("open", document["url"]), ("expires", document["expires_at"])]))


@keys.command("list")
@with_session
def list_keys(session: Session) -> None:
    """List API keys; never the keys themselves."""
    with session.client() as client:
        documents = client.pages("/keys")
    headers = ["NAME", "PREFIX", "ROLE", "EXPIRES", "REVOKED", "ID"]
    columns = ("name", "prefix", "role", "expires_at", "revoked_at", "id")
    rows = [[str(document[column] or formats.UNKNOWN) for column in columns] for document in documents]
    session.emit(documents, lambda: table(headers, rows, empty="no keys"))


@keys.command()
@with_session
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="what it is for", show_default=False)],
    role: Annotated[str, typer.Option(help="viewer, member or admin: what it may do at most")] = "member",
    days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, help="until it expires; default: 90, or as long as the key that you use", show_default=False),
    ] = None,
) -> None:
    """Make an API key; it is shown once."""
    with session.client() as client:
        wish = {} if days is None else {"expires_in_days": days}
        document = client.create("/keys", {"name": name, "role": role, **wish})
    session.emit(document, lambda: fields([("key", document["key"]), ("role", document["role"]), ("id", document["id"])]))


@keys.command()
@with_session
def revoke(session: Session, key_id: Annotated[str, typer.Argument(help="id of the key", show_default=False)]) -> None:
    """Revoke an API key, now, with all keys that were made with it."""
    with session.client() as client:
        client.delete(f"/keys/{key_id}")
    session.emit({"id": key_id, "revoked": True}, lambda: f"{key_id} is revoked")
