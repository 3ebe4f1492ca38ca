"""The rank's end of the socket to its agent. Training never waits for it: a dead or stuck agent is not noticed.

One background thread keeps the connection: connect, introduce, read requests, and all over again when it breaks. Nothing sent
here is the only copy of anything, so what does not fit into the socket's buffer is thrown away with the connection.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator

import msgspec

from training.link import CheckpointRequest, FromRank, Joined, PauseRequest, Progress, RankHello, ToRank

FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 2.0
CONNECT_TIMEOUT_SECONDS = 5.0
CLOSE_TIMEOUT_SECONDS = 1.0
READ_BYTES = 1 << 16

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[ToRank] = msgspec.json.Decoder(ToRank)


class AgentLink:
    """What the agent asks for (`pause_wanted`, `checkpoint_wanted`), and where news go (`joined`, `progress`)."""

    def __init__(self, path: str, hello: RankHello) -> None:
        self.pause_wanted = False
        self.checkpoint_wanted = False
        self._path, self._hello = path, hello
        self._joined: Joined | None = None
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-link", daemon=True)
        self._thread.start()

    def joined(self, message: Joined) -> None:
        self._joined = message
        self._send(message)

    def progress(self, step: int) -> None:
        self._send(Progress(step=step))

    def checkpoint_done(self) -> None:
        self.checkpoint_wanted = False

    def close(self) -> None:
        self._stop.set()
        self._hang_up()
        self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def _run(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while not self._stop.is_set():
            try:
                for request in self._conversation():
                    self._obey(request)
                    pause = FIRST_RETRY_SECONDS
            except (OSError, msgspec.DecodeError):
                pause = min(2 * pause, LONGEST_RETRY_SECONDS)  # the agent is away or new: the next connection will tell
            self._stop.wait(pause * random.uniform(0.5, 1.0))

    def _conversation(self) -> Iterator[ToRank]:
        """Connect, introduce this rank, yield what the agent asks until it hangs up."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_TIMEOUT_SECONDS)
            connection.connect(self._path)
            connection.settimeout(None)
            self._introduce(connection)
            try:
                yield from read_lines(connection)
            finally:
                self._socket = None

    def _introduce(self, connection: socket.socket) -> None:
        connection.sendall(frame(self._hello))
        with self._sending:
            if self._joined is not None:
                connection.sendall(frame(self._joined))
            self._socket = connection

    def _obey(self, request: ToRank) -> None:
        match request:
            case PauseRequest():
                self.pause_wanted = True
            case CheckpointRequest():
                self.checkpoint_wanted = True

    def _send(self, message: FromRank) -> None:
        data = frame(message)
        with self._sending:
            connection = self._socket
            if connection is None:
                return
            try:
                whole = connection.send(data, socket.MSG_DONTWAIT) == len(data)
            except OSError:
                whole = False
            if not whole:
                self._hang_up()

    def _hang_up(self) -> None:
        """Wake the reading thread; it connects anew unless this link is closing."""
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):  # it is gone already, which is what was wanted
                connection.shutdown(socket.SHUT_RDWR)


def read_lines(connection: socket.socket) -> Iterator[ToRank]:
    buffered = b""
    while data := connection.recv(READ_BYTES):
        *lines, buffered = (buffered + data).split(b"\n")
        for line in lines:
            yield _decoder.decode(line)


def frame(message: FromRank) -> bytes:
    return _encoder.encode(message) + b"\n"
