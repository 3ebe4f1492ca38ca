"""The agent's end of its ranks' Unix socket: receives their progress, and tells them to pause, or to take another place."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from paceline.cluster.protocol import RankKey
from paceline.training.link import Broken, FromRank, Joined, Moving, Parked, Progress, RankHello, Stalled, ToRank, encode_to_rank

log = logging.getLogger(__name__)

#: A line that is longer ends its connection. The longest honest one tells of a failure, whose texts are cut (`training.reporting.failures`).
LINE_LIMIT_BYTES = 1 << 20
#: For the hello of a connection, and the most connections that have not said it: each takes a descriptor of the agent's.
HELLO_SECONDS = 10.0
MAX_STRANGERS = 64
#: So many messages of a rank are heard in a second: an honest one sends twenty. One that says more waits, and its agent does not.
MOST_PER_SECOND = 100

_decoder: msgspec.json.Decoder[FromRank] = msgspec.json.Decoder(FromRank)


Said = RankHello | Parked | Joined | Progress | Broken | Stalled | Moving


class RankLink:
    """The connections of ranks, one of each process. `on_message` gets each message of a rank, its hello included, with the rank that the
    message names. Processes are known by the rank that they were started as; `knows` tells whether there is one of this key."""

    def __init__(self, path: Path, on_message: Callable[[RankKey, Said], None], knows: Callable[[RankKey], bool]) -> None:
        self._path = path
        self._on_message = on_message
        self._knows = knows
        self._writers: dict[RankKey, asyncio.StreamWriter] = {}
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # that have said no hello yet, the oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)  # a predecessor's; only one agent holds the data folder's lock
        self._server = await asyncio.start_unix_server(self._on_connection, self._path, limit=LINE_LIMIT_BYTES)
        self._path.chmod(0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def ask(self, process: RankKey, request: ToRank) -> bool:
        """Send a request to a process. Returns False while the process is not connected: send it again later."""
        writer = self._writers.get(process)
        if writer is None or writer.is_closing():
            return False
        writer.write(encode_to_rank(request))
        return True

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, TimeoutError, msgspec.DecodeError, ValueError) as error:  # ValueError: a line over the stream's limit
            log.warning("a rank's connection ended: %s", error)
        except asyncio.CancelledError:
            pass  # the link is closed, and the rank lives on; Python 3.11 would print it as an error of its own
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> RankHello | None:
        """Read the hello of a connection; None where it says none. The oldest connection without one makes room for a new one."""
        if len(self._strangers) >= MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        self._strangers[writer] = None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                line = await reader.readline()
        finally:
            self._strangers.pop(writer, None)
        message = _decoder.decode(line) if line else None
        return message if isinstance(message, RankHello) else None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await self._hello(reader, writer)
        if hello is None:
            return
        process, key = RankKey(hello.job_id, hello.birth.generation, hello.birth.rank), _key_of(hello)
        if not self._knows(process):
            return
        former = self._writers.get(process)
        if former is not None:  # a process has one connection: it has given that one up
            former.transport.abort()
        self._writers[process] = writer
        self._on_message(key, hello)
        heard, until = 0, 0.0
        try:
            async for line in reader:
                message = _decoder.decode(line)
                key = _key_of(message) if isinstance(message, RankHello) else key
                self._on_message(key, message)
                now = time.monotonic()
                heard, until = (heard + 1, until) if now < until else (1, now + 1.0)
                if heard >= MOST_PER_SECOND:
                    await asyncio.sleep(until - now)
        finally:
            if self._writers.get(process) is writer:
                del self._writers[process]


def _key_of(hello: RankHello) -> RankKey:
    return RankKey(hello.job_id, hello.generation, hello.rank)
