"""A ring over TCP: a connection to the next rank and one from the rank before. No torch.

Nothing is encrypted and nobody is asked who they are: the ring's network must be trusted, as that of gloo and NCCL.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from paceline.distributed.collectives.messages import HEADER_NUMBERS, RingHeader, RingMessage, read_header, require
from paceline.distributed.protocol_errors import PeerLostError

#: For all ranks to connect to each other, once each listens.
CONNECT_SECONDS = 60.0
POLL_SECONDS = 0.2
_TIMEVAL = struct.Struct("@ll")
_HEADER = struct.Struct(f"!{HEADER_NUMBERS}q")


class SocketTransport:
    """Sends in a thread of its own, so that a ring of ranks that all send does not wait for itself."""

    def __init__(
        self,
        to_next: socket.socket,
        from_before: socket.socket,
        timeout_seconds: float = 60.0,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._to_next, self._from_before, self._timeout, self._count = to_next, from_before, timeout_seconds, count
        for each in (to_next, from_before):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.settimeout(None)  # Python would ask before each call whether the socket is ready; the kernel keeps the time as well
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                each.setsockopt(socket.SOL_SOCKET, option, _timeval(timeout_seconds))
        self._outgoing: SimpleQueue[RingMessage | None] = SimpleQueue()  # None: there is no more
        self._sent: SimpleQueue[Exception | None] = SimpleQueue()  # what became of each of them, in order
        threading.Thread(target=self._send_all, name="ring-sender", daemon=True).start()

    def start(self, outgoing: RingMessage, expected: RingHeader, room: memoryview) -> Callable[[], None]:
        self._count(len(outgoing.payload))
        self._outgoing.put(outgoing)

        def finish() -> None:
            self._receive(expected, room)
            error = self._sent.get()
            if error is not None:
                raise error

        return finish

    def _send_all(self) -> None:
        while (message := self._outgoing.get()) is not None:
            error: Exception | None = None
            try:
                self._send(message)
            except Exception as raised:  # noqa: BLE001 - raised in the thread that waits for it
                error = raised
            del message  # or its payload would be kept until the next one
            self._sent.put(error)

    def _send(self, message: RingMessage) -> None:
        header = _packed(message.header)
        try:
            sent = self._to_next.sendmsg([header, message.payload])
            if sent < len(header) + len(message.payload):
                self._to_next.sendall((header[sent:] + message.payload) if sent < len(header) else message.payload[sent - len(header) :])
        except OSError as error:
            raise PeerLostError(f"the next rank cannot be sent {message.header}: {error}") from error

    def _receive(self, expected: RingHeader, room: memoryview) -> None:
        found = bytearray(_HEADER.size)
        self._fill(memoryview(found), expected)
        if found != _packed(expected):
            require(read_header(_HEADER.unpack(found)), expected)
        self._fill(room, expected)

    def _fill(self, room: memoryview, expected: RingHeader) -> None:
        done = 0
        while done < len(room):
            try:
                count = self._from_before.recv_into(room[done:], flags=socket.MSG_WAITALL)
            except BlockingIOError:
                raise PeerLostError(f"rank {expected.source} has sent nothing for {self._timeout:g} s; {expected} is due") from None
            except OSError as error:
                raise PeerLostError(f"rank {expected.source} cannot be heard, and {expected} is due: {error}") from error
            if count == 0:
                raise PeerLostError(f"rank {expected.source} is gone; {expected} is due")
            done += count

    def close(self) -> None:
        for each in (self._to_next, self._from_before):
            with contextlib.suppress(OSError):  # gone already, which is the aim
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._outgoing.put(None)


def _packed(header: RingHeader) -> bytes:
    return _HEADER.pack(*header.numbers())


def _timeval(seconds: float) -> bytes:
    """Return seconds as the kernel takes a time-out."""
    return _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6))


def connect(
    listener: socket.socket,
    next_address: tuple[str, int],
    timeout_seconds: float = 60.0,
    count: Callable[[int], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> SocketTransport:
    """Connect to the next rank's `listener`, and take the connection of the rank before at this rank's own.

    All ranks listen before the first of them connects. `count` is told the bytes of each payload that is sent. Raises OSError, and `PeerLostError`
    where the rank before does not come.
    """
    to_next = socket.create_connection(next_address, CONNECT_SECONDS)
    listener.settimeout(POLL_SECONDS)
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            from_before, _ = listener.accept()
        except TimeoutError:
            if is_cancelled() or time.monotonic() > deadline:
                to_next.close()
                raise PeerLostError(f"the rank before has not connected within {CONNECT_SECONDS:g} s, or its generation is over") from None
        else:
            return SocketTransport(to_next, from_before, timeout_seconds, count)
