"""Explains where a setting comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.errors import UsageProblem
from paceline.cli.help import CommandGroup
from paceline.cli.render.output import fields, table
from paceline.cli.session import Session, with_session
from paceline.cli.settings import Setting

app = CommandGroup(help="Show the effective settings and where they come from.", no_args_is_help=True)
SHOWN_OF_A_KEY = 8
SETTINGS = ("server", "context", "api_key")


@app.callback()
def settings() -> None:
    """Settings come from: flag, environment, project file (.paceline), user file, default."""


@app.command()
@with_session
def explain(
    session: Session,
    key: Annotated[
        str | None,
        typer.Argument(metavar="[KEY]", help=f"{', '.join(SETTINGS)}; default: all", show_default=False, autocompletion=lambda: SETTINGS),
    ] = None,
) -> None:
    """Show the effective settings and where they come from, or one of them."""
    if key is not None and key not in SETTINGS:
        raise UsageProblem(f"there is no setting {key!r}", f"settings: {', '.join(SETTINGS)}")
    documents = [_explained(name, getattr(session.settings, name)) for name in SETTINGS]
    if key is None:
        rows = [[str(document[column] or "not set") for column in ("key", "value", "source")] for document in documents]
        session.emit(documents, lambda: table(["SETTING", "VALUE", "FROM"], rows))
        return
    document = documents[SETTINGS.index(key)]
    session.emit(document, lambda: fields([("value", document["value"] or "not set"), ("from", document["source"] or "")]))


def _explained(name: str, setting: Setting) -> dict[str, str | None]:
    """A setting for people; of a key only its beginning."""
    value = f"{setting.value[:SHOWN_OF_A_KEY]}..." if name == "api_key" and setting.value else setting.value
    return {"key": name, "value": value, "source": setting.source}
