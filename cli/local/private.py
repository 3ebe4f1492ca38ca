"""A coordinator with one agent for a single run: in a temporary folder, on a port of its own, and gone afterwards, however the run ends."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.cli.errors import StackError, UsageProblem
from paceline.cli.interrupts import deferred, finish_or_hurry
from paceline.cli.local.layout import Layout
from paceline.cli.local.ports import unused_port
from paceline.cli.local.processes import kill_marked
from paceline.cli.local.programs import StackPlan
from paceline.cli.local.stack import Stack, bring_up
from paceline.cli.local.watchdog import StackWatchdog
from paceline.cli.render.output import note
from paceline.cli.settings import forget_other_coordinators

#: Bytes of the folder for temporary files. Sockets lie below it, and the system takes no path over about 100 bytes for one.
LONGEST_PLACE = 40
SHORT_PLACE = "/tmp"
#: Reasons of one refusal that are listed.
MOST_REASONS = 5


def require_valid(spec: dict[str, Any]) -> None:
    """Refuse what the private coordinator, which is of this same installation, would refuse once it is up. Raises UsageProblem."""
    from pydantic import ValidationError

    from paceline.training.spec.job import JobSpec
    from paceline.training.spec.refusals import told

    try:
        JobSpec.model_validate(spec)
    except ValidationError as error:
        raise UsageProblem(told(error, MOST_REASONS)) from None


@contextlib.contextmanager
def private_stack(slots: int | None, pass_environment: tuple[str, ...]) -> Iterator[Stack]:
    """A private coordinator with one agent. `slots`: how many ranks the agent takes; None: one a GPU, else one a CPU. `pass_environment`:
    variables of this shell that ranks get.

    Afterwards its processes have ended and its folder is gone; Ctrl-C meanwhile kills what is left instead of waiting for it. Raises
    StackError."""
    forget_other_coordinators()
    with contextlib.ExitStack() as clean_up:
        with deferred():  # from the first word on, Ctrl-C says what it does
            note("starting a coordinator on this machine for this run")
            layout = Layout.at(Path(tempfile.mkdtemp(prefix="paceline-run-", dir=_place())))
            clean_up.enter_context(_ended(layout, StackWatchdog(layout, forget=True)))
        yield _started(layout, StackPlan(unused_port(), 1, slots, pass_environment, outlives_sigterm=True))


@contextlib.contextmanager
def _ended(layout: Layout, watchdog: StackWatchdog) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        finish_or_hurry(lambda: kill_marked(layout))  # before it is said that another Ctrl-C does so
        note("", "stopping; Ctrl-C again kills what is left")
        raise
    finally:
        finish_or_hurry(lambda: kill_marked(layout))
        watchdog.release()


def _place() -> str:
    """The temporary folder: in TMPDIR, or where that is too long for sockets in SHORT_PLACE."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= LONGEST_PLACE else SHORT_PLACE


def _started(layout: Layout, plan: StackPlan) -> Stack:
    try:
        return bring_up(layout, plan, _quiet)
    except StackError as error:
        raise StackError(f"a private coordinator for this run does not start: {error.message}") from error


def _quiet(message: str) -> None:
    """Drop the messages that `paceline up` would print of each of its steps."""
