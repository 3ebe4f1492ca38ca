"""The command of an exec session as processes: started as its rank is, written to, read from, signalled and ended with all it has started."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.agent import memory_groups
from paceline.cluster.agent.account import Account
from paceline.cluster.agent.children import die_with
from paceline.cluster.agent.processes import descendants, offer_to_memory_killer, send_signal
from paceline.cluster.exec_frames import CANNOT_EXECUTE, NO_SUCH_PROGRAM, STDERR, STDOUT

#: The kernel's out-of-memory killer takes a command before any rank.
COMMAND_SCORE = 1000
HANG_UP_SECONDS = 2.0
_POLL_SECONDS = 0.05
_MOST_SWEEPS = 20
END_OF_TRANSMISSION = b"\x04"


class CannotStartError(Exception):
    """The command was not started. `exit_code` is what a shell would end with."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class CommandLimits:
    """The limits that a command is kept to: those of a rank."""

    umask: int
    account: Account | None
    group: Path | None


class Descriptor:
    """An end of a pipe, or the master of a terminal, in asyncio. asyncio's own streams lose what is buffered when a terminal hangs up."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number

    async def read(self, most: int) -> bytes:
        """Read up to so many bytes; none at the end."""
        while True:
            try:
                return os.read(self.number, most)
            except BlockingIOError:
                await self._ready(asyncio.get_running_loop().add_reader, asyncio.get_running_loop().remove_reader)
            except OSError as error:
                if error.errno == errno.EIO:  # nobody has the terminal open any more
                    return b""
                raise

    async def write(self, content: bytes) -> None:
        """Write all of it. Raises OSError where the command reads no more."""
        while content:
            try:
                content = content[os.write(self.number, content) :]
            except BlockingIOError:
                await self._ready(asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer)

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        ready = asyncio.get_running_loop().create_future()
        add(self.number, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            remove(self.number)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.number)


class Program:
    """A running command. This process must be its subreaper (PR_SET_CHILD_SUBREAPER)."""

    def __init__(
        self, process: subprocess.Popen[bytes], stdin: Descriptor, outputs: Mapping[int, Descriptor], terminal: int | None
    ) -> None:
        self.pid = process.pid
        self.outputs = outputs
        self._process, self._stdin, self._terminal = process, stdin, terminal
        self._handle = os.pidfd_open(process.pid)

    async def wait(self) -> int:
        """Wait for the end of the command itself. Returns its exit code, or 128 + N for signal N."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(self._handle, lambda: None if ended.done() else ended.set_result(None))
        try:
            await ended
        finally:
            loop.remove_reader(self._handle)
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    async def feed(self, content: bytes) -> None:
        """Give the command input. What it does not want any more is dropped."""
        with contextlib.suppress(OSError):
            await self._stdin.write(content)

    async def end_input(self) -> None:
        if self._terminal is not None:
            await self.feed(END_OF_TRANSMISSION)
        else:
            self._stdin.close()

    def resize(self, rows: int, columns: int) -> None:
        """Tell the terminal its size; the kernel tells the command by SIGWINCH. Without a terminal nothing happens."""
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                _set_size(self._terminal, rows, columns)

    def signal(self, name: str) -> None:
        """Signal the process group in the foreground of the terminal; without a terminal, the command's."""
        group = self.pid
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                group = os.tcgetpgrp(self._terminal)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.Signals[f"SIG{name}"])

    def kill_rest(self) -> None:
        """Send SIGKILL to everything that the command has started and that is left."""
        for _ in range(_MOST_SWEEPS):
            left = descendants(os.getpid())
            if not left:
                return
            send_signal(left, signal.SIGKILL)
            reap(self.pid)

    async def hang_up(self) -> None:
        """End the command as the end of its terminal would: SIGHUP, and after HANG_UP_SECONDS SIGKILL, to all it has started."""
        everything = descendants(os.getpid())
        send_signal(everything, signal.SIGHUP)
        send_signal(everything, signal.SIGCONT)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HANG_UP_SECONDS
        while loop.time() < deadline and descendants(os.getpid()):
            reap(None)
            await asyncio.sleep(_POLL_SECONDS)
        self.kill_rest()
        reap(None)


def reap(main: int | None) -> None:
    """Reap children that have ended: what the command has left becomes ours. `main` is left to `Program.wait`."""
    for pid in descendants(os.getpid()):
        if pid != main:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def start(
    command: Sequence[str], environment: Mapping[str, str], directory: str, confines: CommandLimits, terminal: tuple[int, int] | None
) -> Program:
    """Start a command. `terminal`: the rows and columns of the one it gets; None: pipes. Raises CannotStartError."""
    master, ends = _terminal(terminal, confines.account) if terminal is not None else (None, (subprocess.PIPE,) * 3)
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=ends[0],
            stdout=ends[1],
            stderr=ends[2],
            preexec_fn=_Entry(os.getpid(), directory, confines, has_terminal=master is not None),
        )
    except OSError as error:
        if master is not None:
            os.close(master)
        missing = error.errno == errno.ENOENT
        why = "there is no such program on this node, or none on the rank's PATH" if missing else error.strerror
        raise CannotStartError(NO_SUCH_PROGRAM if missing else CANNOT_EXECUTE, f"cannot run {command[0]}: {why}") from error
    finally:
        if master is not None:
            os.close(ends[0])
    if master is not None:
        both = Descriptor(master)
        return Program(process, both, {STDOUT: both}, master)
    pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe is not None]
    stdin, stdout, stderr = (Descriptor(os.dup(pipe.fileno())) for pipe in pipes)
    for pipe in pipes:
        pipe.close()
    return Program(process, stdin, {STDOUT: stdout, STDERR: stderr}, None)


def _terminal(size: tuple[int, int], account: Account | None) -> tuple[int, tuple[int, int, int]]:
    """A terminal of this size that belongs to the command's user: (master, the command's three ends of it)."""
    master, slave = pty.openpty()
    _set_size(master, *size)
    if account is not None:
        os.fchown(slave, account.uid, account.gid)
    return master, (slave,) * 3


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@dataclass(frozen=True)
class _Entry:
    """Turns the forked child into a process of the rank's kind, right before it executes the command. Its standard error is the command's."""

    keeper_pid: int
    directory: str
    confines: CommandLimits
    has_terminal: bool

    def __call__(self) -> None:
        try:
            os.setsid()
            if self.has_terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            offer_to_memory_killer(COMMAND_SCORE)
            if self.confines.group is not None:
                memory_groups.enter(self.confines.group)
            os.umask(self.confines.umask)
            if self.confines.account is not None:
                self.confines.account.become()
            die_with(self.keeper_pid)
            os.chdir(self.directory)
        except OSError as error:
            os.write(2, f"paceline: cannot enter {self.directory} beside the rank: {error.strerror}\n".encode())
            os._exit(CANNOT_EXECUTE)
        except BaseException:  # noqa: BLE001 - the last frame before the command: nothing may unwind into the keeper's loop
            traceback.print_exc()
            os._exit(CANNOT_EXECUTE)
