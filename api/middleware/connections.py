"""Closes connections that cost something and send nothing: uvicorn limits the idle time between two requests, but not the time before the
first.

`python -m paceline.api.serve` uses it, with at most 4096 connections. The gate, which knows the path, limits the time of a body.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

#: From the connection, or from the first byte of a later request, to the end of its headers; and for the rest of a body that is not read any more.
HEAD_SECONDS = 10.0
#: The most bytes of the request line and the headers together.
MAX_HEAD_BYTES = 64 << 10
#: For a peer that takes nothing of what is sent to it.
STALL_SECONDS = 60.0
#: File descriptors of a coordinator: 4,096 connections, its databases, and what it reads.
DESCRIPTORS = 8192


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with a limit for each thing that a peer may leave undone.

    Where `--limit-concurrency` connections are open, one that never sent a request makes room for a new one, else the one that has
    waited longest since its last answer: a peer that opens thousands and sends nothing only closes its own."""

    head_seconds = HEAD_SECONDS
    max_head_bytes = MAX_HEAD_BYTES
    stall_seconds = STALL_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_head = True
        self._head_bytes = 0
        self._since = self.loop.time()
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def asks_for_nothing(self) -> bool:
        return self._in_head and (self.cycle is None or self.cycle.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._late is None:
                self._wait()
        super().data_received(data)
        if self._in_head and self._head_bytes > self.max_head_bytes and not self.transport.is_closing():
            self._refuse_head()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()
        if not self._in_head:  # the answer is out, but of the body not all is here: any byte of it would start uvicorn's own time-out anew
            self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def _wait(self) -> None:
        self._stop_waiting()
        self._late = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()  # part of the next request came while this one is answered
        else:
            self._close()

    def _close(self) -> None:
        """Close the connection. Data that is sent already may still be taken, for a while."""
        self.transport.close()
        self.loop.call_later(self.stall_seconds, self.transport.abort)

    def _refuse_head(self) -> None:
        said = f"the request line and the headers are over {self.max_head_bytes} bytes".encode()
        length = b"content-length: %d\r\n" % len(said)
        self.transport.write(
            STATUS_LINE[431] + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n" + length + b"\r\n" + said
        )
        self._close()

    def _make_room(self) -> None:
        silent = [each for each in self.connections if isinstance(each, GuardedProtocol) and each is not self and each.asks_for_nothing]
        if silent:
            oldest = min(silent, key=lambda each: (each.cycle is not None, each._since))  # first one that never sent a request
            self.connections.discard(oldest)  # the loop tells it that it is closed only later, and more may come before
            oldest.transport.abort()
