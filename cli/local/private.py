"""A coordinator with one agent for a single run: in a temporary folder, on a port of its own, and gone afterwards, however the run ends."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cli.errors import StackError
from cli.interrupts import ignore_from_now_on
from cli.local.layout import Layout
from cli.local.stack import Plan, Stack, bring_up, unused_port
from cli.local.watchdog import Watchdog
from cli.settings import forget_other_coordinators

#: Bytes of the folder for temporary files. Sockets lie below it, and the system takes no path over about 100 bytes for one.
LONGEST_PLACE = 40
SHORT_PLACE = "/tmp"


@contextlib.contextmanager
def private_stack(slots: int | None, pass_environment: tuple[str, ...]) -> Iterator[Stack]:
    """`slots`: how many ranks the agent takes; None: one a GPU, else one a CPU. `pass_environment`: variables of this shell that ranks get.

    Afterwards its processes have ended, its folder is gone, and this process takes no more signals. Raises StackError."""
    forget_other_coordinators()
    layout = Layout.at(Path(tempfile.mkdtemp(prefix="paceline-run-", dir=_place())))
    watchdog = Watchdog(layout, forget=True)
    try:
        yield _started(layout, Plan(unused_port(), 1, slots, pass_environment))
    finally:
        ignore_from_now_on()
        watchdog.release()


def _place() -> str:
    """TMPDIR, or where that is too long for sockets SHORT_PLACE."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= LONGEST_PLACE else SHORT_PLACE


def _started(layout: Layout, plan: Plan) -> Stack:
    try:
        return bring_up(layout, plan, _quiet)
    except StackError as error:
        raise StackError(f"a private coordinator for this run does not start: {error.message}") from error


def _quiet(message: str) -> None:
    """What `paceline up` would tell of each of its steps."""
