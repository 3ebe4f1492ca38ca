"""Ctrl-C, SIGTERM and SIGHUP for commands that own what they started: all unwind like Ctrl-C, and the clean-up runs to its end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

import typer

from cli.exits import ExitCode

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does; one that nothing inside handles exits with 130."""
    for number in ENDING_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Signals that arrive inside take effect at the end: between asking for something and knowing its name there is no good moment."""
    numbers = {signal.SIGINT, *ENDING_SIGNALS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_from_now_on() -> None:
    """The clean-up runs to its end, whatever is pressed meanwhile."""
    for number in (signal.SIGINT, *ENDING_SIGNALS):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
