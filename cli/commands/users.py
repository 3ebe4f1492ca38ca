"""Users of the coordinator: list, create, change what they may do, disable and enable."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Annotated, Any

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import User
from paceline.cli.help import CommandGroup
from paceline.cli.render import formats
from paceline.cli.render.output import fields, table
from paceline.cli.session import Session, with_session

app = CommandGroup(help="List, create, enable and disable users, and change their roles.", no_args_is_help=True)


class RoleName(StrEnum):
    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


UserRef = Annotated[str, typer.Argument(metavar="USER", help="name or id", show_default=False)]
NewRole = Annotated[RoleName, typer.Argument(help="a viewer looks, a member also runs jobs, an admin also manages nodes and users", show_default=False)]  # fmt: skip


@app.command("list")
@with_session
def list_users(session: Session) -> None:
    """List users, what they may do, and when they were last active."""
    with session.client() as client:
        documents = client.pages("/users")
    session.emit(documents, lambda: _table([parsed(document, User) for document in documents]))


@app.command()
@with_session
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="letters, digits, spaces, '.', '_', '@' and '-'", show_default=False)],
    role: Annotated[RoleName, typer.Option(help="what the user may do")] = RoleName.MEMBER,
) -> None:
    """Create a user, who signs in with a link that you make."""
    with session.client() as client:
        document = client.create("/users", {"name": name, "role": role})
    session.emit(document, lambda: fields([(key, document[key]) for key in ("name", "role", "id")]))
    session.next_steps(f"paceline login-link --user {shlex.quote(name)}")


@app.command("role")
@with_session
def change_role(session: Session, user: UserRef, role: NewRole) -> None:
    """Change what a user may do, at once."""
    _change(session, user, {"role": role})


@app.command()
@with_session
def disable(session: Session, user: UserRef) -> None:
    """Lock a user out, now: sessions end and API keys stop working. Jobs go on."""
    _change(session, user, {"disabled": True})


@app.command()
@with_session
def enable(session: Session, user: UserRef) -> None:
    """Let a disabled user in again. API keys work again, and a browser has to sign in."""
    _change(session, user, {"disabled": False})


def _change(session: Session, reference: str, change: dict[str, Any]) -> None:
    with session.client() as client:
        document = client.patch(f"/users/{client.user_id(reference)}", change)
    user = parsed(document, User)
    session.emit(document, lambda: f"{user.name} has the role {user.role} and is {_state(user)}")


def _state(user: User) -> str:
    return "disabled" if user.disabled else "enabled"


def _table(users: list[User]) -> str:
    rows = [
        [user.name, user.role, _state(user), formats.since(user.last_active_at), formats.day(user.created_at), user.id] for user in users
    ]
    return table(["NAME", "ROLE", "STATE", "LAST ACTIVE", "CREATED", "ID"], rows, empty="no users")
