"""The help of every command: what it lists, its examples, and that it costs little."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from paceline.cli.app import COMMANDS, app, load
from paceline.cli.help import help_text
from paceline.cli.help_examples import EXAMPLES
from tests.cli.conftest import ROOT

SUMMARIES = [(name, place, summary) for entries in COMMANDS.values() for name, (place, summary) in entries.items()]
ROOT_COMMAND: Any = typer.main.get_command(app)


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The words of every command that does something."""
    if not isinstance(command, TyperGroup):
        yield " ".join(words)
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), (*words, name))


def parse(command: Any, words: list[str], name: str = "paceline", parent: Any = None) -> None:
    """Parse words as they would be typed, without running anything."""
    context = command.make_context(name, words, parent)
    if isinstance(command, TyperGroup) and (rest := [*context._protected_args, *context.args]):
        _, below, arguments = command.resolve_command(context, rest)
        parse(below, arguments, rest[0], context)


@pytest.mark.parametrize(("name", "place", "summary"), SUMMARIES)
def test_each_line_of_the_list_is_the_beginning_of_the_commands_own_help(name: str, place: str, summary: str) -> None:
    assert inspect.cleandoc(load(name, place).help).startswith(summary)


def test_each_command_has_an_example_and_no_example_is_of_another() -> None:
    found = set(leaves(ROOT_COMMAND))
    assert found <= EXAMPLES.keys()
    assert EXAMPLES.keys() <= found | {"", "nodes", "pools"}


@pytest.mark.parametrize("example", [each for examples in EXAMPLES.values() for each in examples])
def test_each_example_can_be_typed(example: str) -> None:
    words = shlex.split(example.rpartition("| ")[2])
    assert words[0] == "paceline"
    parse(ROOT_COMMAND, words[1:])


def test_help_lists_options_by_section_and_ends_with_examples() -> None:
    text = help_text(ROOT_COMMAND, ["jobs", "--help"])
    assert text is not None
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", "Connection and output:", "Examples:"]
    assert "\n  paceline jobs --watch\n" in text


@pytest.mark.parametrize("words", sorted(leaves(ROOT_COMMAND)))
def test_types_of_values_read_as_words(words: str) -> None:
    text = help_text(ROOT_COMMAND, [*words.split(), "-h"])
    assert text is not None
    assert not set(re.findall("<[a-z][^>=]*>", text)) - {"<text>", "<number>", "<path>", "<viewer|member|admin>", "<table|json|jsonl|yaml>"}


def test_help_of_a_script_is_the_scripts() -> None:
    assert help_text(ROOT_COMMAND, ["run", "train.py", "--help"]) is None


@pytest.mark.parametrize("words", ["", "submit", "nodes add", "experiment run", "up"])
def test_help_imports_nothing_that_takes_long(words: str) -> None:
    """Each of these packages costs 50 ms or more; a Python that does nothing takes 20 ms."""
    code = (
        f"import sys\nfrom paceline.cli.app import run\ncode = run({[*words.split(), '--help']!r})\n"
        "print(' '.join(sys.modules), file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"Usage: paceline {words}".rstrip())
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"rich", "pydantic", "httpx", "yaml", "psutil", "numpy", "websockets", "torch"}
