"""The client of an exec session: this terminal's input, output, signals and size, over one WebSocket.

Input is read in a thread that waits until what it has read was taken, and output is written in one, so that pings are answered and signals sent while
either stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from paceline.cli.client import RestClient
from paceline.cli.errors import CliError, UnreachableError, UsageProblem
from paceline.cli.exits import ExitCode
from paceline.cli.render.output import note
from paceline.cli.settings import LOOPBACK
from paceline.cluster.exec_frames import (
    DEFAULT_COLUMNS,
    DEFAULT_ROWS,
    MOST_COLUMNS,
    MOST_FRAME_BYTES,
    MOST_ROWS,
    MOST_TEXT_BYTES,
    STDOUT,
    WINDOW_BYTES,
    EndOfInput,
    Exited,
    FromClient,
    SendSignal,
    SessionEnded,
    StartCommand,
    Started,
    Taken,
    TerminalSize,
    UnfitFrameError,
    decode_from_keeper,
    encode,
)
from paceline.monitoring.send_window import SendWindow

OPEN_SECONDS, PING_SECONDS = 10.0, 20.0
STDIN_FD, STDOUT_FD, STDERR_FD = 0, 1, 2
#: What a shell says of a program that ended because nobody reads its output.
BROKEN_PIPE = 128 + signal.SIGPIPE
_BY_CODE = {
    "not_authenticated": ExitCode.NOT_ALLOWED,
    "forbidden": ExitCode.NOT_ALLOWED,
    "exec_off": ExitCode.NOT_ALLOWED,
    "not_the_owner": ExitCode.NOT_ALLOWED,
    "job_not_found": ExitCode.NOT_FOUND,
    "job_not_running": ExitCode.CONFLICT,
    "rank_not_running": ExitCode.CONFLICT,
    "too_many_sessions": ExitCode.CONFLICT,
    "node_away": ExitCode.UNREACHABLE,
    "invalid_request": ExitCode.USAGE,
}


class ExecRefusedError(CliError):
    """The session was refused, or has ended before its command."""

    def __init__(self, word: SessionEnded) -> None:
        super().__init__(word.message)
        self.exit_code = _BY_CODE.get(word.code, ExitCode.ERROR)


@dataclass(frozen=True)
class Terminal:
    """The terminal of this process, if it has one."""

    is_there: bool

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Every key goes to the command, Ctrl-C too, until the end of the context."""
        if not self.is_there:
            yield
            return
        before = termios.tcgetattr(STDIN_FD)
        try:
            tty.setraw(STDIN_FD)
            yield
        finally:
            termios.tcsetattr(STDIN_FD, termios.TCSADRAIN, before)

    @staticmethod
    def size() -> tuple[int, int]:
        """Return its rows and columns as it has them now: the variables LINES and COLUMNS may be those of another one."""
        for number in (STDIN_FD, STDOUT_FD, STDERR_FD):
            with contextlib.suppress(OSError):  # no terminal
                columns, rows = os.get_terminal_size(number)
                if rows and columns:
                    return min(rows, MOST_ROWS), min(columns, MOST_COLUMNS)
        return DEFAULT_ROWS, DEFAULT_COLUMNS


def run_session(client: RestClient, job_id: str, start: StartCommand) -> int:
    """Run a command beside a rank. Returns its exit code. Raises ExecRefusedError, UnreachableError or UsageProblem."""
    terminal = Terminal(start.tty and os.isatty(STDIN_FD))
    return asyncio.run(ExecClient(start, terminal).run(client, job_id))


class ExecClient:
    """One session, as its client sees it."""

    def __init__(self, start: StartCommand, terminal: Terminal) -> None:
        self._start, self._terminal = start, terminal
        self._window = SendWindow(WINDOW_BYTES)
        self._interrupts = 0
        self._end: asyncio.Future[int] | None = None

    async def run(self, client: RestClient, job_id: str) -> int:
        connection = await _connect(client, job_id)
        self._end = asyncio.get_running_loop().create_future()
        receiving = asyncio.create_task(self._receive(connection))
        try:
            await connection.send(encode(self._start))
            with self._terminal.raw(), self._signals(connection):
                await asyncio.wait([receiving, self._end], return_when=asyncio.FIRST_COMPLETED)
            return self._end.result() if self._end.done() else receiving.result()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            await connection.close()

    async def _receive(self, connection: ClientConnection) -> int:
        """Write out what the command prints, until it has ended. Returns its exit code."""
        try:
            async for frame in connection:
                if isinstance(frame, bytes):
                    target = STDOUT_FD if frame[0] == STDOUT else STDERR_FD
                    await asyncio.to_thread(_write, target, frame[1:])
                    self._say(connection, Taken(bytes=len(frame) - 1))
                    continue
                match decode_from_keeper(frame):
                    case Started():
                        self._forward_input(connection)
                    case Taken(bytes=taken):
                        self._window.grow(taken)
                    case Exited(exit_code=code, message=message):
                        if message:
                            note(f"error: {message}")
                        return code
                    case SessionEnded() as word:
                        raise ExecRefusedError(word)
        except ConnectionClosed:
            pass  # told below
        except BrokenPipeError:
            return BROKEN_PIPE
        except UnfitFrameError as error:
            raise CliError(f"the coordinator sent {error}", "install the version of paceline that the coordinator has") from error
        raise UnreachableError(
            "the connection to the coordinator is lost, and the command beside the rank is ended", "the job itself goes on; start again"
        )

    def _forward_input(self, connection: ClientConnection) -> None:
        if self._terminal.is_there:
            self._resize(connection)  # it may have changed since
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_input, args=(connection, loop), daemon=True).start()

    def _read_input(self, connection: ClientConnection, loop: asyncio.AbstractEventLoop) -> None:
        """Send standard input as far as the command takes it. In a thread of its own: a read of a terminal cannot be cancelled."""
        with contextlib.suppress(ConnectionClosed, RuntimeError, asyncio.CancelledError, OSError):  # the session has ended
            while piece := os.read(STDIN_FD, MOST_FRAME_BYTES):
                asyncio.run_coroutine_threadsafe(self._send_input(connection, piece), loop).result()
            asyncio.run_coroutine_threadsafe(connection.send(encode(EndOfInput())), loop).result()

    async def _send_input(self, connection: ClientConnection, piece: bytes) -> None:
        while piece:
            room = await self._window.room(MOST_FRAME_BYTES)
            self._window.spend(len(piece[:room]))
            await connection.send(piece[:room])
            piece = piece[room:]

    @contextlib.contextmanager
    def _signals(self, connection: ClientConnection) -> Iterator[None]:
        """Ctrl-C goes to the command, and a second one ends the session; so do SIGTERM and SIGHUP. A terminal in raw mode sends no SIGINT."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt, connection)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._finish, 128 + number)
        if self._start.tty:
            loop.add_signal_handler(signal.SIGWINCH, self._resize, connection)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
                loop.remove_signal_handler(number)

    def _interrupt(self, connection: ClientConnection) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            self._finish(ExitCode.INTERRUPTED)
            return
        note("interrupted beside the rank; Ctrl-C again ends the session")
        self._say(connection, SendSignal(name="INT"))

    def _resize(self, connection: ClientConnection) -> None:
        rows, columns = self._terminal.size()
        self._say(connection, TerminalSize(rows=rows, columns=columns))

    def _say(self, connection: ClientConnection, message: FromClient) -> None:
        task = asyncio.get_running_loop().create_task(connection.send(encode(message)))
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # `_receive` tells of a lost connection

    def _finish(self, code: int) -> None:
        assert self._end is not None
        if not self._end.done():
            self._end.set_result(code)


async def _connect(client: RestClient, job_id: str) -> ClientConnection:
    key = client.settings.key
    url = client.stream_url(f"/training/jobs/{quote(job_id, safe='')}/exec")
    try:
        return await connect(
            url,
            ssl=client.tls,
            additional_headers={"Authorization": f"Bearer {key}"} if key else {},
            open_timeout=OPEN_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            close_timeout=1.0,
            max_size=MOST_TEXT_BYTES,
            compression=None,
            max_queue=None,  # what is on its way has a window; a full queue would hold back pings as well
            proxy=None if urlsplit(url).hostname in LOOPBACK else True,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        raise UsageProblem(
            f"{client.settings.url} answers {status} to a WebSocket of an exec session",
            "it is older than this program, or a proxy in between passes no WebSockets: both must be changed there",
        ) from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise UnreachableError(f"{client.settings.url} does not answer: {str(error) or type(error).__name__}") from error


def _write(target: int, content: bytes) -> None:
    if target == STDOUT_FD:
        sys.stdout.flush()
    while content:
        content = content[os.write(target, content) :]
