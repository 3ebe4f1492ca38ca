"""A ring within one process: a queue between each two neighbours. No torch."""

from __future__ import annotations

import queue
from collections.abc import Callable

from paceline.distributed.collectives.messages import RingHeader, RingMessage, require
from paceline.distributed.protocol_errors import PeerLostError, WrongSizeError

#: What goes from a rank to the next one: messages with copies of their payloads; None once the rank is gone.
Link = queue.SimpleQueue[tuple[RingHeader, bytes] | None]


class QueueTransport:
    """The queue to the next rank and the one from the rank before."""

    def __init__(self, to_next: Link, from_before: Link, timeout_seconds: float) -> None:
        self._to_next, self._from_before, self._timeout = to_next, from_before, timeout_seconds

    def start(self, outgoing: RingMessage, expected: RingHeader, room: memoryview) -> Callable[[], None]:
        self._to_next.put((outgoing.header, bytes(outgoing.payload)))
        return lambda: self._receive(expected, room)

    def _receive(self, expected: RingHeader, room: memoryview) -> None:
        try:
            found = self._from_before.get(timeout=self._timeout)
        except queue.Empty:
            raise PeerLostError(f"rank {expected.source} has sent nothing for {self._timeout:g} s; {expected} is due") from None
        if found is None:
            raise PeerLostError(f"rank {expected.source} is gone; {expected} is due")
        header, payload = found
        require(header, expected)
        if len(payload) != len(room):
            raise WrongSizeError(f"{header}: its payload has {len(payload)} bytes, and it says {header.length}")
        room[:] = payload

    def close(self) -> None:
        self._to_next.put(None)


def ring_of_queues(size: int, timeout_seconds: float = 60.0) -> list[QueueTransport]:
    """Return the transports of the ranks of a ring, by position."""
    links: list[Link] = [queue.SimpleQueue() for _ in range(size)]
    return [QueueTransport(links[position], links[position - 1], timeout_seconds) for position in range(size)]
