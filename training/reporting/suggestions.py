"""The name that may have been meant by one that does not exist: Python prints it at the end of a traceback, but it is not in the exception's message."""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Iterable

#: How like a name must be to another, as difflib counts it, to be offered.
LIKENESS = 0.7
LONGEST_NAME = 40
MOST_NAMES = 750


def suggestion(error: BaseException, text: str) -> str:
    """Return what follows `text`, the message of an exception, where Python prints it: ". Did you mean: 'loss'?"; empty where nothing does.

    Python 3.11 looks for near names only as it prints an exception that nothing has caught; there they are looked for here."""
    if not isinstance(error, NameError | AttributeError | ImportError):
        return ""
    told = next(traceback.TracebackException.from_exception(error).format_exception_only(), "").rstrip()
    if text in told and (more := told.rpartition(text)[2]):
        return more
    name = getattr(error, "name_from" if isinstance(error, ImportError) else "name", None)
    if sys.version_info >= (3, 12) or not isinstance(name, str) or len(name) > LONGEST_NAME:
        return ""
    known = list(_known(error))
    if name in known or len(known) > MOST_NAMES:
        return ""
    near = difflib.get_close_matches(name, known, 1, LIKENESS)
    return f". Did you mean: '{near[0]}'?" if near else ""


def _known(error: BaseException) -> Iterable[str]:
    """The names that there were where one was not found."""
    if isinstance(error, AttributeError):
        try:
            return [name for name in dir(error.obj) if isinstance(name, str)]
        except Exception:  # noqa: BLE001 - `__dir__` is the user's
            return []
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return [] if place is None else {**place.tb_frame.f_builtins, **place.tb_frame.f_globals, **place.tb_frame.f_locals}
