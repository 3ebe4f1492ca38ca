"""The output of a command: one document on stdout, in the requested form; everything else goes to stderr."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TextIO

from paceline.cli.errors import OutputError
from paceline.cli.settings import plain_output


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"


def emit(document: Any, form: Format, human: Callable[[], str]) -> None:
    """Print `document` for machines, or what `human` returns for people, with its state words coloured."""
    encode = {Format.JSON: _json, Format.JSONL: _jsonl, Format.YAML: _yaml}.get(form)
    text = coloured(plain(human())) if encode is None else encode(document)
    _put(text if text.endswith("\n") or not text else text + "\n")


def print_line(line: str, *, colours: bool = False) -> None:
    """Print one line of the requested output, at once. `colours`: those that are in it stay."""
    _put((harmless(line) if colours else plain(line)) + "\n")


def print_document(document: Any) -> None:
    """Print one document of several as a line of JSON, at once."""
    _put(_json_line(document))


_COLOURS_OF_TEXT = r"\x1b\[[0-9;:]*m"  # "select graphic rendition": colours and styles
#: Escape sequences in their 7-bit and 8-bit forms: strings that end with BEL or ST (titles, links), control sequences, short ones, and
#: beginnings of any of them.
_ESCAPE_SEQUENCES = re.compile(
    rf"({_COLOURS_OF_TEXT})"
    r"|(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?|[\x80-\x9f]"
)


def without_escapes(text: str, *, colours: bool) -> str:
    """Remove all escape sequences from what a job has printed; `colours`: but those that set colours and styles."""
    return _ESCAPE_SEQUENCES.sub(lambda found: (found[1] or "") if colours else "", text)


def shows_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal whose user has not asked for plain text."""
    return stream.isatty() and not plain_output()


#: Only colours of what acts on a terminal are let through: what jobs print may clear the screen, rename the window, or worse, and
#: the marks that set the direction of writing may show it in another order.
_ACTS_ON_TERMINALS = re.compile(rf"({_COLOURS_OF_TEXT})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Make `text` safe for a terminal: colours stay, and every other control character is written so that people can read it, as `^[`
    for ESC and `\\u202e` for one that turns the direction of writing."""
    return _ACTS_ON_TERMINALS.sub(lambda found: found[1] or _readable(found[0]), text)


def plain(text: str) -> str:
    """Make `text` safe for whatever reads it, a terminal behind a pipe too: without escape sequences, and with every other control
    character but tabs and ends of lines written so that people can read it."""
    return harmless(without_escapes(text, colours=False))


def _readable(character: str) -> str:
    if character > "\xff":
        return f"\\u{ord(character):04x}"
    return f"^{chr(ord(character) ^ 0x40)}" if character < "\x80" else f"\\x{ord(character):02x}"


def clear_screen() -> None:
    """Clear the terminal that stdout is, and go to its first line."""
    _put("\x1b[H\x1b[2J")


def _put(text: str) -> None:
    """Write to stdout at once. What cannot be written is dropped, or the interpreter would try again at exit, with a traceback."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader has seen enough: typer ends quietly
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(f"stdout cannot be written: {error.strerror}") from error


def note(*lines: str, colours: bool = False) -> None:
    """Print a line for people, on stderr. `colours`: those that are in it stay."""
    for line in lines:
        print(harmless(line) if colours else plain(line), file=sys.stderr, flush=True)


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
    if not shows_colours(sys.stdout):
        return text
    for word, colour in _COLOURS.items():
        text = text.replace(f"  {word} ", f"  \x1b[{colour}m{word}\x1b[0m ")
    return text


def _json(document: Any) -> str:
    return _escaped(json.dumps(document, indent=2, ensure_ascii=False))


def _jsonl(document: Any) -> str:
    return "".join(map(_json_line, document if isinstance(document, list) else [document]))


def _json_line(document: Any) -> str:
    return _escaped(json.dumps(document, ensure_ascii=False)) + "\n"


def _escaped(text: str) -> str:
    """Write what acts on terminals as JSON's own escapes: the text means the same. JSON itself escapes only what is below the space."""
    return _ACTS_ON_TERMINALS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _yaml(document: Any) -> str:
    import yaml  # only this form needs it

    text = str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    return text if _ACTS_ON_TERMINALS.search(text) is None else str(yaml.safe_dump(document, sort_keys=False))
