"""The page of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main
from typer.core import TyperArgument, TyperGroup

from scripts.docs_site.reference.markdown import code, sentence, table

OPENING = """# Command line

Every command takes `--help`. Those that speak to a coordinator take `--server`, `--api-key`, `--output` and `--json` as well.

"""
#: Options that nearly every command has; the opening names them.
EVERYWHERE = {"--help", "--server", "--api-key", "--output", "--json"}


def page() -> str:
    from paceline.cli.app import app

    return OPENING + "".join(section(path, command) for path, command in leaves(typer.main.get_command(app), "paceline"))


def leaves(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (what is typed, the command) for each command below the group that does something by itself."""
    context = typer.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, TyperGroup):
            yield from leaves(command, f"{path} {name}")
        elif not command.hidden:
            yield f"{path} {name}", command


def section(path: str, command: Any) -> str:
    shown = (each for each in command.params if not each.hidden and not EVERYWHERE & set(each.opts))
    rows = [(code(spelling(each)), sentence(each.help or "")) for each in shown]
    return f"## {path}\n\n{paragraphs(command.help or '')}\n\n{table(('Argument', 'Meaning'), rows)}"


def paragraphs(text: str) -> str:
    """Return a help text with its command lines set apart."""
    return "\n\n".join(f"    {each}" if each.startswith("paceline ") else each for each in text.replace("\b\n", "").split("\n\n"))


def spelling(parameter: Any) -> str:
    if isinstance(parameter, TyperArgument):
        return parameter.metavar or str(parameter.name).upper()
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + value
