"""Tracebacks that rich draws in a box, as typer's programs and `rich.traceback.install` print them, turned into Python's own form. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.cluster.agent.ranks.tracebacks import PRINTED_AFTER

#: Where the console has more columns, rich draws its boxes no wider, and the width of the text below is not known.
WIDEST = 100
_TOP = re.compile(r"[╭+][─-]{2,} Traceback \(most recent call last\) [─-]{2,}[╮+]")
_BOTTOM = re.compile(r"[╰+][─-]{2,}[╯+]")
#: Long paths go on in the next line: the blanks around `in` may have been left out there. A line of code begins with its number.
_FRAME = re.compile(r"(?P<file>[^\d\s❱>].*):(?P<line>\d+) ?in ?(?P<function>\S.*)")
#: What torch puts before each line of a traceback once there is a process group, and torchrun's `--tee` before each line.
_OF_RANK = re.compile(r"(?:\[default\d+\]:)?(?:\[rank\d+\]: ?)?")


def unboxed(lines: Sequence[str]) -> list[str]:
    """Return the lines with each boxed traceback in the form in which Python prints one: a line for each frame, and the exception's message where rich
    has broken it in one line. All others, and a box without an end, stay as they are."""
    found: list[str] = []
    at = 0
    while at < len(lines):
        rank, top = _split(lines[at])
        end = _end_of_box(lines, at) if _TOP.fullmatch(top) else None
        if end is None:
            found.append(lines[at])
            at += 1
            continue
        found += [f"{rank}{line}" for line in _pythons([_split(line)[1] for line in lines[at + 1 : end]])]
        message, at = _message(lines, end + 1, len(top))
        found += message
    return found


def _split(line: str) -> tuple[str, str]:
    found = _OF_RANK.match(line)
    end = found.end() if found else 0
    return line[:end], line[end:].rstrip()


def _end_of_box(lines: Sequence[str], top: int) -> int | None:
    return next((number for number in range(top + 1, len(lines)) if _BOTTOM.fullmatch(_split(lines[number])[1])), None)


def _pythons(inside: Sequence[str]) -> list[str]:
    """The frames within a box, whose parts (the place of a frame, its lines of code) have empty lines between them."""
    found = ["Traceback (most recent call last):"]
    part = ""
    for line in [*inside, ""]:
        content = line[1:-1].strip()
        if content:
            part += content
            continue
        if frame := _FRAME.fullmatch(part):
            found.append(f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}')
        part = ""
    return found


def _message(lines: Sequence[str], at: int, width: int) -> tuple[list[str], int]:
    """The line behind a box, with the next ones whose first word had no room in it any more; and the number of the first line after them."""
    if at >= len(lines):
        return [], at
    rank, text = _split(lines[at])
    last, at = text, at + 1
    while at < len(lines) and text and width < WIDEST:
        of, more = _split(lines[at])
        if of != rank or not more or more[0].isspace() or PRINTED_AFTER.match(more) or len(f"{last} {more.split()[0]}") <= width:
            break
        is_cut = len(last) == width < len(f"{last.split()[-1]}{more.split()[0]}")  # within a word that is longer than a line
        text, last, at = f"{text}{'' if is_cut else ' '}{more}", more, at + 1
    return [f"{rank}{text}"], at
