"""Explains where a setting comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.errors import UsageProblem
from paceline.cli.output import fields
from paceline.cli.session import Session, with_session

app = typer.Typer(help="Settings: which value is used, and which source won.", no_args_is_help=True)
SHOWN_OF_A_KEY = 8


@app.callback()
def settings() -> None:
    """Settings come from: flag, environment, project file (.paceline), user file, default."""


@app.command()
@with_session
def explain(session: Session, key: Annotated[str, typer.Argument(help="server or api_key", show_default=False)]) -> None:
    """Say which value a setting has and where it comes from."""
    known = {"server": session.settings.server, "api_key": session.settings.api_key}
    if key not in known:
        raise UsageProblem(f"there is no setting {key!r}", f"settings: {', '.join(known)}")
    setting = known[key]
    secret = key == "api_key" and setting.value is not None
    shown = f"{(setting.value or '')[:SHOWN_OF_A_KEY]}..." if secret else setting.value
    document = {"key": key, "value": shown, "source": setting.source}
    session.emit(document, lambda: fields([("value", shown or "not set"), ("from", setting.source)]))
