"""Ctrl-C, SIGTERM and SIGHUP for commands that own what they started: all unwind like Ctrl-C, and the clean-up runs to its end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

import typer

from paceline.cli.exits import ExitCode

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
    """A context in which signals take effect only at its end: between asking for something and knowing its name there is no good moment."""
    numbers = {signal.SIGINT, *ENDING_SIGNALS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_from_now_on() -> None:
    """Ignore all signals from now on, so that the clean-up runs to its end."""
    for number in (signal.SIGINT, *ENDING_SIGNALS):
        signal.signal(number, signal.SIG_IGN)


def finish_or_hurry(hurry: Callable[[], None]) -> None:
    """A context in which the clean-up runs to its end, whatever ends its terminal or its Slurm job meanwhile; Ctrl-C alone calls
    `hurry`, which ends at once what the clean-up waits for."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, lambda number, frame: hurry())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
