"""What is written when a process ends: at its interpreter's end, or before that, where the process ends without it."""

from __future__ import annotations

import atexit
import contextlib
import traceback
from collections.abc import Callable

#: The last one is called first.
_ends: list[Callable[[], None]] = []


def call_at_end(end: Callable[[], None]) -> None:
    """Call `end` when the interpreter ends, or by `call_ends` before that; what was given last is called first. A second call must be harmless."""
    atexit.register(end)
    _ends.append(end)


def forget_at_end(end: Callable[[], None]) -> None:
    """Take back what `call_at_end` was given."""
    atexit.unregister(end)
    with contextlib.suppress(ValueError):
        _ends.remove(end)


def call_ends() -> None:
    """Call all that `call_at_end` was given, for a process that ends without its interpreter's end, as ranks of the trainer do."""
    while _ends:
        try:
            _ends.pop()()
        except Exception:  # noqa: BLE001 - as at the interpreter's own end: the others are called
            traceback.print_exc()
