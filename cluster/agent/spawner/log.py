"""The spawner's log: lines are written past every buffer that its ranks would inherit."""

from __future__ import annotations

import contextlib
import os

#: Complaints that are remembered, so that each is made once.
MAX_REMEMBERED = 1_000


def write_line(text: str) -> None:
    """Write one line to the log. A line for which the disk has no room is lost."""
    with contextlib.suppress(OSError):
        os.write(1, f"{text}\n".encode(errors="backslashreplace"))


class RepeatedErrors:
    """Errors that may come up again and again; each text is logged once."""

    def __init__(self) -> None:
        self._written: set[str] = set()

    def write_once(self, text: str) -> None:
        if text in self._written:
            return
        write_line(text)
        if len(self._written) >= MAX_REMEMBERED:
            self._written.clear()
        self._written.add(text)
