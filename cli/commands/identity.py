"""Signing in: stored keys, login links for the dashboard, API keys."""

from __future__ import annotations

from typing import Annotated

import typer

from cli import formats
from cli.errors import UsageProblem
from cli.output import fields, table
from cli.session import Session, with_session
from cli.settings import store, user_file

keys = typer.Typer(help="API keys: list, create, revoke.", no_args_is_help=True)


@with_session
def login(session: Session) -> None:
    """Try the key given with --api-key or PACELINE_API_KEY, and store it for this user."""
    key = session.settings.key
    if key is None:
        raise UsageProblem("there is no key to store", "paceline login --server URL --api-key KEY")
    with session.client() as client:
        me = client.get("/auth/me")
    store(user_file(), session.settings.url, key)
    session.emit(me, lambda: f"signed in to {session.settings.url} as {me['name']} ({me['role']}); stored in {user_file()}")
    session.next_steps("paceline jobs")


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
