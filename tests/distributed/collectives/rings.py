"""Rings within one process: a thread for each rank, over queues or over TCP. No torch."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from paceline.distributed.collectives.messages import RingHeader, RingMessage
from paceline.distributed.collectives.queues import ring_of_queues
from paceline.distributed.collectives.ring import Ring, Transport
from paceline.distributed.collectives.sockets import SocketTransport, connect

T = TypeVar("T")
SECONDS = 20.0


def on_all(size: int, function: Callable[[int], T]) -> list[Future[T]]:
    """Call `function(position)` in a thread for each rank, and return how each ended."""
    with ThreadPoolExecutor(size) as threads:
        return [threads.submit(function, position) for position in range(size)]


def results(size: int, function: Callable[[int], T]) -> list[T]:
    return [done.result() for done in on_all(size, function)]


@contextlib.contextmanager
def ring_of_sockets(size: int, send_buffer: int | None = None) -> Iterator[list[SocketTransport]]:
    """`send_buffer`: bytes that each socket takes before its peer has read some; None: as the kernel has it."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(size)]
    addresses = [listener.getsockname() for listener in listeners]
    transports = results(size, lambda position: connect(listeners[position], addresses[(position + 1) % size], SECONDS))
    for connection in transports if send_buffer is not None else ():
        assert send_buffer is not None
        connection._to_next.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    try:
        yield transports
    finally:
        for connection in transports:
            connection.close()
        for listener in listeners:
            listener.close()


@contextlib.contextmanager
def transports(kind: str, size: int) -> Iterator[Sequence[Transport]]:
    """The transports of a ring over `queues` or `sockets`."""
    if kind == "queues":
        yield ring_of_queues(size, SECONDS)
    else:
        with ring_of_sockets(size) as found:
            yield found


def rings(connections: Sequence[Transport], ranks: Sequence[int] | None = None, chunk_bytes: int = 64, depth: int = 4) -> list[Ring]:
    """Return a ring for each rank, of generation 1."""
    order = tuple(ranks or range(len(connections)))
    return [Ring(order, rank, 1, connection, chunk_bytes, depth) for rank, connection in zip(order, connections, strict=True)]


class Meddler:
    """A transport that sends something else than it is told to, from some message on."""

    def __init__(self, transport: Transport, change: Callable[[RingHeader], RingHeader], at: int) -> None:
        self._transport, self._change, self._at, self._sent = transport, change, at, 0

    def start(self, outgoing: RingMessage, expected: RingHeader, room: memoryview) -> Callable[[], None]:
        self._sent += 1
        header = self._change(outgoing.header) if self._sent == self._at else outgoing.header
        return self._transport.start(RingMessage(header, outgoing.payload), expected, room)

    def close(self) -> None:
        self._transport.close()
