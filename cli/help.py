"""The help of commands: plain text with a section for each kind of option, and examples at the end. Typer's own needs rich, which costs
100 ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from paceline.cli.help_examples import EXAMPLES

Function = TypeVar("Function", bound=Callable[..., Any])
#: What typer calls the types of values, and what people do.
WORDS = {"<str>": "<text>", "<path>": "<path>", **dict.fromkeys(("<int>", "<float>", "<int range>", "<float range>"), "<number>")}
_TYPE = re.compile("|".join(map(re.escape, WORDS)))
DEFAULT_SECTION = "Options"
HELP_OPTIONS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class PlainCommand(TyperCommand):
    """A command whose help is plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx.command_path, formatter)


class PlainGroup(TyperGroup):
    """A group of commands whose help is plain text, in sections by `rich_help_panel`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self._write_commands(ctx, formatter)
        _write_parameters(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx.command_path, formatter)
        super().format_epilog(ctx, formatter)

    def _write_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            section = sections.setdefault(str(getattr(command, "rich_help_panel", None) or "Commands"), [])
            section.append((name, command.get_short_help_str(limit=200)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class CommandGroup(typer.Typer):
    """A typer application whose commands, and their help, are plain."""

    def __init__(self, *, cls: type[TyperGroup] = PlainGroup, **options: Any) -> None:
        super().__init__(cls=cls, rich_markup_mode=None, context_settings=HELP_OPTIONS, pretty_exceptions_enable=False, **options)

    def command(self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **options: Any) -> Callable[[Function], Function]:
        return super().command(name, cls=cls or PlainCommand, **options)


def help_text(root: Any, arguments: list[str]) -> str | None:
    """The help that was asked for, where the arguments are names of commands and --help alone; else None. It is made without parsing:
    for that typer imports pydantic, which costs 80 ms."""
    *names, last = arguments or [""]
    if last not in HELP_OPTIONS["help_option_names"]:
        return None
    context = typer.Context(root, info_name="paceline", **root.context_settings)
    for name in names:
        command = context.command.get_command(context, name) if isinstance(context.command, TyperGroup) else None
        if command is None:
            return None
        context = typer.Context(command, info_name=name, parent=context, **command.context_settings)
    return str(context.get_help())


def _write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    """Write arguments, then options, those of other sections than the default one below them."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], DEFAULT_SECTION: []}
    for each in parameters:
        record = each.get_help_record(ctx)
        is_argument = each.param_type_name == "argument"
        title = "Arguments" if is_argument else getattr(each, "rich_help_panel", None) or DEFAULT_SECTION
        if record is not None:
            spelling, text = record
            name = spelling.partition(" <")[0] if is_argument else _TYPE.sub(lambda found: WORDS[found[0]], spelling)
            sections.setdefault(title, []).append((name, text))
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _write_examples(command_path: str, formatter: Any) -> None:
    """Write the examples of a command. `command_path`: its words, the program's name first."""
    examples = EXAMPLES.get(command_path.partition(" ")[2], ())
    if examples:
        with formatter.section("Examples"):
            for each in examples:
                formatter.write(f"{'':{formatter.current_indent}}{each}\n")
