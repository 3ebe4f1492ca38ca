"""Notices: the agent hears that its machine will be taken away, tells the coordinator, and leaves once its ranks have gone elsewhere.

A notice comes from the clock (`--ends-in`, a batch system's time limit), from a signal (SIGUSR1; SIGTERM where `--drain-on-term` is given), from a
command that is asked again and again, or from a file that appears (a cloud's spot interruption). All of them are one thing: an end at a time, with
a reason. The coordinator drains the node: its jobs shrink, or save and wait for other slots. What is not done shortly before the end is broken off.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from paceline.cluster.protocol import Notice

DEFAULT_DRAIN_SECONDS = 120.0
#: At the very end ranks get SIGTERM, so that the agent can still report how they ended.
LAST_SECONDS = 5.0
#: A signal that comes again within this time is the same one: batch systems signal a process and its shell.
SAME_SIGNAL_SECONDS = 2.0
ASK_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 10.0
MOST_CHARACTERS = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NoticeSettings:
    """Where notices come from. `drain_seconds`: how long before the end the node is drained, and how much time a notice without one leaves."""

    ends_in: float | None = None  # seconds from the start of the agent
    drain_seconds: float = DEFAULT_DRAIN_SECONDS
    drain_on_term: float | None = None  # seconds that SIGTERM leaves; None: SIGTERM ends the ranks at once
    command: tuple[str, ...] = ()
    file: Path | None = None
    returns: bool = False  # the machine comes back with the same data folder: its node is kept


def add_notice_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `NoticeSettings` to the agent's command line."""
    parser.add_argument(
        "--ends-in", type=_seconds, metavar="SECONDS", help="this machine is taken away after so long: a batch system's time limit"
    )
    parser.add_argument(
        "--drain-seconds",
        type=_seconds,
        default=DEFAULT_DRAIN_SECONDS,
        metavar="SECONDS",
        help="how long before the end jobs are moved away; also what SIGUSR1 leaves (default: %(default)g)",
    )
    parser.add_argument(
        "--drain-on-term",
        type=_seconds,
        metavar="SECONDS",
        help="SIGTERM is a notice that leaves so long, instead of ending the ranks at once; a second one ends them",
    )
    parser.add_argument(
        "--notice-command",
        type=_command,
        default=(),
        metavar="COMMAND",
        help=f"asked each {ASK_SECONDS:g} s; exit code 0 is a notice, and a number that it prints first is the seconds left",
    )
    parser.add_argument(
        "--notice-file", type=Path, metavar="FILE", help="a notice as soon as it is there; a number in it is the seconds left"
    )
    parser.add_argument(
        "--returns", action="store_true", help="this machine comes back with the same --data: after a notice its node is kept"
    )


def read_notice_options(options: argparse.Namespace) -> NoticeSettings:
    """Return the settings that the command line gives."""
    return NoticeSettings(
        ends_in=options.ends_in,
        drain_seconds=options.drain_seconds,
        drain_on_term=options.drain_on_term,
        command=options.notice_command,
        file=options.notice_file,
        returns=options.returns,
    )


@dataclass
class NoticeWatch:
    """Collects notices into the one that counts: the earliest end. `on_notice` is called when there is one, or an earlier one.

    Ends are seconds from some moment on, so they are kept by the monotonic clock: the wall clock of a machine that has just started may be
    hours off until it is set. It is used only where an end is told to others."""

    settings: NoticeSettings
    on_notice: Callable[[], None] = lambda: None
    started_at: float = field(default_factory=time.monotonic)
    notice: Notice | None = None
    wall_clock: Callable[[], float] = time.time
    _notice_end: float | None = None
    _signalled_at: float | None = None
    _end_moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ends_at(self) -> float | None:
        """Wall clock: when the machine will be taken away, as far as it is known; None: not known."""
        end = min((each for each in (self._end_by_clock(), self._notice_end) if each is not None), default=None)
        return None if end is None else self.wall_clock() + end - time.monotonic()

    def _end_by_clock(self) -> float | None:
        return None if self.settings.ends_in is None else self.started_at + self.settings.ends_in

    def on_usr1(self) -> None:
        """SIGUSR1: the machine will be taken away in `drain_seconds`."""
        self._take(time.monotonic() + self.settings.drain_seconds, "SIGUSR1: its batch system or its machine announced the end")

    def on_term(self) -> bool:
        """SIGTERM. Returns whether it is to end the ranks at once: without --drain-on-term, and the second time."""
        now = time.monotonic()
        if self.settings.drain_on_term is None:
            return True
        if self._signalled_at is not None:
            return now - self._signalled_at > SAME_SIGNAL_SECONDS
        self._signalled_at, self.notice, self._notice_end = now, None, None  # whatever was to come back does not
        self._take(now + self.settings.drain_on_term, "SIGTERM: it is to end", returns=False)
        return False

    async def run(self) -> None:
        """Watch the clock, the command and the file until a notice is there, and go on to see an earlier end."""
        while True:
            self._look_at_clock(time.monotonic())
            self._look_at_file()
            await self._ask_command()
            await asyncio.sleep(self._pause(time.monotonic()))

    async def until_last_seconds(self) -> None:
        """Wait until the end is so near that what still runs must be ended."""
        while (left := self._seconds_until_last()) > 0:
            self._end_moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left if left < math.inf else None):
                    await self._end_moved.wait()

    def _seconds_until_last(self) -> float:
        return math.inf if self._notice_end is None else self._notice_end - LAST_SECONDS - time.monotonic()

    def _pause(self, now: float) -> float:
        end = self._end_by_clock()
        to_drain = math.inf if end is None or self.notice is not None else end - self.settings.drain_seconds - now
        return max(0.05, min(ASK_SECONDS, to_drain))

    def _look_at_clock(self, now: float) -> None:
        end = self._end_by_clock()
        if end is not None and now >= end - self.settings.drain_seconds:
            self._take(end, "its time limit ends")

    def _look_at_file(self) -> None:
        if self.settings.file is None:
            return
        with contextlib.suppress(OSError):
            self._take_text(self.settings.file.read_text(errors="replace"), f"{self.settings.file} appeared")

    async def _ask_command(self) -> None:
        if not self.settings.command:
            return
        try:
            process = await asyncio.create_subprocess_exec(
                *self.settings.command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
        except OSError as error:
            log.warning("--notice-command %s cannot be started: %s", self.settings.command[0], error.strerror)
            return
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            log.warning("--notice-command %s has not answered within %g s", self.settings.command[0], ANSWER_TIMEOUT_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return
        if process.returncode == 0:
            self._take_text(output.decode(errors="replace"), f"{Path(self.settings.command[0]).name} announced it")

    def _take_text(self, text: str, reason: str) -> None:
        """Take a notice whose text may begin with the seconds left. A repeated one changes nothing: those seconds count from the first."""
        if self.notice is not None and self.notice.reason.startswith(reason):
            return
        first, _, rest = text.strip().partition(" ")
        try:
            left = float(first)
        except ValueError:
            left, rest = math.nan, text.strip()
        left = left if 0 <= left < math.inf else self.settings.drain_seconds
        said = " ".join(rest.split())[:MOST_CHARACTERS]
        self._take(time.monotonic() + left, f"{reason}: {said}" if said else reason)

    def _take(self, end: float, reason: str, *, returns: bool | None = None) -> None:
        known = self._end_by_clock()
        end = end if known is None else min(end, known)
        if self._notice_end is not None and end >= self._notice_end - 1.0:
            return
        left, self._notice_end = end - time.monotonic(), end
        self._end_moved.set()
        self.notice = Notice(ends_at=self.wall_clock() + left, reason=reason, returns=self.settings.returns if returns is None else returns)
        log.warning("a notice: %s; this node is drained, and ends in %.0f s", reason, max(0.0, left))
        self.on_notice()


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of seconds of at least 1")
    return seconds


def _command(value: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r} is no command line: {error}") from None
    if not words:
        raise argparse.ArgumentTypeError("the command is empty")
    return words
