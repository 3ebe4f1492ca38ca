"""The question before what cannot be undone. It is asked at a terminal only."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paceline.cli.errors import UsageProblem
from paceline.cli.render.output import note

Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]


def can_ask() -> bool:
    """Whether there is somebody at a terminal."""
    return sys.stdin.isatty()


def confirm(loss: str, question: str, *, needs_yes: bool = False) -> None:
    """Say what will be lost, and ask. Raises typer.Abort at any answer but yes.

    Without a terminal there is nobody to ask: the script goes on, as with kubectl and scancel. `needs_yes`: it has to say --yes, and
    UsageProblem is raised, which tells what would have been lost. That is for what deletes data."""
    if can_ask():
        note(loss)
        typer.confirm(question, abort=True, err=True)
    elif needs_yes:
        raise UsageProblem(f"nothing was done, because there is no terminal to ask at. {loss}", "add --yes to go ahead without a question")
