"""Which lines of a stack are the user's own: those outside Paceline, the standard library and installed packages. No torch in here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from paceline.location import is_ours
from paceline.monitoring.words import plural

_LIBRARIES = ("/site-packages/", "/dist-packages/", f"{Path(sys.base_prefix)}/lib/", "<frozen ")
_STANDARD_LIBRARY = re.compile(r".*/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)|<frozen ")
#: As `torchrun` of an environment.
_INSTALLED_PROGRAM = re.compile(r".*/bin/[^./]+")
#: The lines of an exception group stand behind `  | `.
_FRAME = re.compile(r'^[\s|]*File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<function>.+)$', re.MULTILINE)
_SECOND_MEMBER = "+---------------- 2 ----------------"


def is_users(file: str) -> bool:
    """Return whether the source file with this path is the user's own, whichever Python it runs on."""
    if is_ours(file) or any(library in file for library in _LIBRARIES):
        return False
    return not _STANDARD_LIBRARY.match(file) and not _INSTALLED_PROGRAM.fullmatch(file)


def place(function: str, file: str, line: int) -> str:
    """A line of code in words, as `loss in train.py:22`; without a function, `train.py:22`."""
    where = f"{Path(file).name}:{line}"
    return where if function == "<module>" else f"{function} in {where}"


def innermost(traceback: str) -> str:
    """The last line of the user's own code in a traceback's text, as `place` words it; empty where there is none. An exception group's is that of
    its first member."""
    frames = [found for found in _FRAME.finditer(traceback.partition(_SECOND_MEMBER)[0]) if is_users(found["file"])]
    return place(frames[-1]["function"], frames[-1]["file"], int(frames[-1]["line"])) if frames else ""


def raised_in(traceback: str) -> str:
    """The file of the innermost frame of a traceback's text outside the standard library, of the last traceback where several are chained."""
    last = traceback.rpartition("Traceback (most recent call last):")[2]
    return innermost_file(found["file"] for found in _FRAME.finditer(last))


def innermost_file(files: Iterable[str]) -> str:
    """The last of these files, outermost first, that is not of the standard library; empty where there is none."""
    return next((file for file in reversed(list(files)) if not _STANDARD_LIBRARY.match(file)), "")


def folded(traceback: str) -> str:
    """A traceback's text in which each run of frames that are not the user's is one line with their number; empty where no frame is the user's."""
    kept: list[str] = []
    hidden, depth, any_is_users, is_shown = 0, 0, False, True
    for line in traceback.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            depth, is_shown = _depth(line), is_users(frame["file"])
            any_is_users |= is_shown
            hidden += not is_shown
        elif _depth(line) <= depth:
            is_shown = True
        if is_shown:
            kept += [f"  … {plural(hidden, 'frame')} of libraries"] if hidden else []
            kept.append(line)
            hidden = 0
    return "\n".join(kept) if any_is_users else ""


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" |"))


def line_of_crash(text: str) -> str:
    """The user's line that a crash in native code came from, by what Python's fault handler printed (innermost frame first)."""
    _, _, stack = text.rpartition("(most recent call first):")
    found = next((found for found in _FRAME.finditer(stack) if is_users(found["file"])), None)
    return place(found["function"], found["file"], int(found["line"])) if found else ""
