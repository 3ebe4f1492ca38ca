"""Switches between the coordinators that `login` has stored."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paceline.cli.help import CommandGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render.output import note, table
from paceline.cli.session import Session, with_session
from paceline.cli.settings import (
    DEFAULT_CONTEXT,
    PROJECT,
    context_names,
    context_server,
    existing_context,
    resolve,
    stored_context,
    use_context,
)

app = CommandGroup(help="Switch between coordinators. 'paceline login --store-as NAME' stores one.", no_args_is_help=True)


def stored_contexts(incomplete: str) -> list[str]:
    """Completion of the name of a context."""
    return [name for name in context_names() if name.startswith(incomplete)]


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="as 'paceline context list' prints it", show_default=False, autocompletion=stored_contexts)
]


@app.command("list")
@with_session
def list_contexts(session: Session) -> None:
    """List the stored contexts, each with its server. The current one is marked."""
    current = session.settings.context.value
    documents = [{"name": name, "server": context_server(name), "current": name == current} for name in context_names()]
    session.emit(documents, lambda: _table(documents))
    _warn_of_others(session)


@app.command()
@with_session
def use(session: Session, name: Name) -> None:
    """Use a context from now on, in every shell of yours."""
    existing_context(name)
    use_context(name)
    server = context_server(name)
    session.emit({"name": name, "server": server, "current": True}, lambda: f"using {name}, {server}")
    _warn_of_others(session)


@app.command()
@with_session
def remove(session: Session, name: Name, yes: Yes = False) -> None:
    """Forget a context and its key. The key stays valid: 'paceline keys revoke' ends it. At a terminal it asks first."""
    file = existing_context(name)
    if not yes:
        confirm(
            f"The key of {name}, for {context_server(name)}, will be forgotten. A key is shown once: another one may be needed.", "Forget?"
        )
    file.unlink()
    if stored_context().value == name:
        use_context(DEFAULT_CONTEXT)
    session.emit({"name": name, "removed": True}, lambda: f"{name} is forgotten")


def _warn_of_others(session: Session) -> None:
    """Say so where something else than the current context decides which coordinator is used here."""
    server = resolve().server
    if session.for_people and server.source.startswith((PROJECT, "environment")):
        note(f"note: in this folder and shell, commands go to {server.value} (from {server.source}) unless --context is given")


def _table(contexts: list[dict[str, Any]]) -> str:
    rows = [["*" if each["current"] else "", each["name"], each["server"]] for each in contexts]
    return table(["", "NAME", "SERVER"], rows, empty="no contexts; 'paceline login --server URL --api-key KEY --store-as NAME' stores one")
