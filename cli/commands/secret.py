"""Secrets of projects: set from stdin or a prompt, listed without their values, deleted; and the key that seals them, made anew."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated
from urllib.parse import quote

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import RotatedKey, Secret
from paceline.cli.errors import UsageProblem
from paceline.cli.help import CommandGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import fields, table
from paceline.cli.session import Session, with_session

app = CommandGroup(help="Set, list and delete secrets that jobs get as variables: tokens, keys, passwords.", no_args_is_help=True)

ROOT = "/secrets"
Project = Annotated[str, typer.Option("--project", "-p", help="the project whose jobs may name it")]
SecretName = Annotated[str, typer.Argument(metavar="NAME", help="of the variable, such as HF_TOKEN", show_default=False)]
MOST_BYTES = 64 << 10


@app.command("set")
@with_session
def set_secret(session: Session, name: SecretName, project: Project = "default") -> None:
    """Set a secret, or replace its value. The value is typed unseen, or read from stdin; it is never an argument, where `ps` and the shell's history would
    show it."""
    _require_name(name)
    value = _value_of(name)
    with session.client() as client:
        document = client.put(_path(project, name), body={"value": value})
    secret = parsed(document, Secret)
    session.emit(document, lambda: f"{secret.name} is set for project {secret.project}")
    session.next_steps(f"environment: {{secrets: [{name}]}}   # in the spec of a job of project {project}")


def _require_name(name: str) -> None:
    if "=" in name:
        raise UsageProblem(
            "the value of a secret is no argument: other users see it in `ps`, and your shell keeps it in its history",
            f"paceline secret set {shlex.quote(name.partition('=')[0])}, which asks for the value; and make a new one in place of this",
        )


def _value_of(name: str) -> str:
    """The value, without the newline at its end."""
    if sys.stdin.isatty():
        return str(typer.prompt(f"Value of {name}", hide_input=True, err=True))
    data = sys.stdin.buffer.read(MOST_BYTES)
    try:
        value = data.decode()
    except UnicodeDecodeError:
        raise UsageProblem("what came on stdin is not UTF-8 text", f"encode it: base64 < FILE | paceline secret set {name}") from None
    value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise UsageProblem("there is no value on stdin", f"pipe it in: paceline secret set {name} < FILE")
    return value


@app.command("list")
@with_session
def list_secrets(
    session: Session, project: Annotated[str | None, typer.Option("--project", "-p", help="only those of this project")] = None
) -> None:
    """List secrets by name. Nobody can read a value back."""
    with session.client() as client:
        documents = client.get(ROOT, project=project)
    session.emit(documents, lambda: _secret_table([parsed(document, Secret) for document in documents]))


def _secret_table(secrets: list[Secret]) -> str:
    columns = ("PROJECT", "NAME", "SET BY", "SET")
    rows = [(each.project, each.name, each.updated_by, formats.since(each.updated_at)) for each in secrets]
    return table(columns, rows, empty="there are no secrets: paceline secret set NAME")


@app.command("delete")
@with_session
def delete_secret(session: Session, name: SecretName, project: Project = "default", yes: Yes = False) -> None:
    """Delete a secret. Ranks that run keep their variable; ranks that are to start fail."""
    if not yes:
        confirm(f"Jobs of project {project} that name {name} cannot start any more.", f"Delete {name}?")
    with session.client() as client:
        client.delete(_path(project, name))
    session.emit({"project": project, "name": name, "deleted": True}, lambda: f"{name} of project {project} is deleted")


@app.command("rotate")
@with_session
def rotate(
    session: Session,
    drop_unreadable: Annotated[
        bool, typer.Option("--drop-unreadable", help="delete secrets, and switch off channels, whose key is lost")
    ] = False,
    yes: Yes = False,
) -> None:
    """Make a new key, seal all secrets and notification channels with it, and delete the older keys. For admins."""
    if drop_unreadable and not yes:
        confirm("Secrets whose key is lost are deleted, and channels switched off.", "Go ahead?", needs_yes=True)
    with session.client() as client:
        document = client.create(f"{ROOT}/rotate", {"drop_unreadable": drop_unreadable})
    done = parsed(document, RotatedKey)
    shown = [
        ("key", done.key_id),
        ("sealed anew", f"{formats.count(done.secrets, 'value')}, {formats.count(done.channels, 'channel')}"),
        ("older keys", f"{done.deleted_keys} deleted"),
        *([("given up", ", ".join(done.dropped))] if done.dropped else []),
    ]
    session.emit(document, lambda: fields(shown))


def _path(project: str, name: str) -> str:
    return f"{ROOT}/{quote(project, safe='')}/{quote(name, safe='')}"
