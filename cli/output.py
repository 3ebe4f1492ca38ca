"""The output of a command: one document on stdout, in the requested form; everything else goes to stderr."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from paceline.cli.errors import OutputError
from paceline.cli.settings import plain_output


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"


def emit(document: Any, form: Format, human: Callable[[], str]) -> None:
    """Print `document` for machines, or what `human` returns for people."""
    encode = {Format.JSON: _json, Format.JSONL: _jsonl, Format.YAML: _yaml}.get(form)
    text = human() if encode is None else encode(document)
    write(text if text.endswith("\n") or not text else text + "\n")


def print_line(line: str) -> None:
    """Print one line of the requested output, at once."""
    write(line + "\n")


#: Of what acts on a terminal, colours alone are let through: what jobs print may clear the screen, rename the window, or worse, and
#: the marks that set the direction of writing may show it in another order.
_ACTS_ON_TERMINALS = re.compile(r"(\x1b\[[0-9;]*m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Make `text` safe for a terminal: colours stay, and every other control character is written so that people can read it, as `^[`
    for ESC and `\\u202e` for one that turns the direction of writing."""
    return _ACTS_ON_TERMINALS.sub(lambda found: found[1] or _readable(found[0]), text)


def _readable(character: str) -> str:
    if character > "\xff":
        return f"\\u{ord(character):04x}"
    return f"^{chr(ord(character) ^ 0x40)}" if character < "\x80" else f"\\x{ord(character):02x}"


def write(text: str) -> None:
    """Write to stdout: unchanged, but `harmless` for a terminal. What cannot be written is dropped, or the interpreter would try again
    at exit, with a traceback."""
    try:
        sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader has seen enough: typer ends quietly
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(f"stdout cannot be written: {error.strerror}") from error


def note(*lines: str) -> None:
    """Print a line for people, on stderr."""
    for line in lines:
        print(harmless(line) if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], empty: str = "nothing here", *, fit: bool = False, drop: Sequence[str] = ()
) -> str:
    """A table with columns as wide as their longest cell, two spaces apart. `fit`: lines that are wider than the terminal are cut. `drop`:
    columns that a narrow terminal goes without, in this order, as long as others than the last one would be cut."""
    if not rows:
        return empty
    columns, most = list(zip(headers, *rows, strict=True)), shutil.get_terminal_size().columns
    for name in drop:
        if sum(max(map(len, column)) + 2 for column in columns[:-1]) <= most:
            break
        columns = [column for column in columns if column[0] != name]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    lines = ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
    return "\n".join(cut(line, most) for line in lines) if fit else "\n".join(lines)


def cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in pairs)


_COLOURS = {"running": 32, "ready": 32, "completed": 36, "failed": 31, "lost": 31, "cancelled": 33, "paused": 33, "queued": 34}


def coloured(text: str) -> str:
    """The table with its state words coloured, where a person is looking at a terminal."""
    if plain_output() or not sys.stdout.isatty():
        return text
    for word, colour in _COLOURS.items():
        text = text.replace(f"  {word} ", f"  \x1b[{colour}m{word}\x1b[0m ")
    return text


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def _jsonl(document: Any) -> str:
    items = document if isinstance(document, list) else [document]
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


def _yaml(document: Any) -> str:
    import yaml  # only this form needs it

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
