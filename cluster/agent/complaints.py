"""What the spawner writes into its log, past every buffer that its ranks would inherit."""

from __future__ import annotations

import contextlib
import os

#: Complaints that are remembered, so that each is made once.
MOST_TOLD = 1_000


def say(text: str) -> None:
    """What a full disk does not take is lost."""
    with contextlib.suppress(OSError):
        os.write(1, f"{text}\n".encode(errors="backslashreplace"))


class Complaints:
    """Says each of them once, however often it is met."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def say_once(self, text: str) -> None:
        if text in self._told:
            return
        say(text)
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told.add(text)
