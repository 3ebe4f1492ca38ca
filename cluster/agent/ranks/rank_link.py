"""The agent's end of its ranks' Unix socket: receives their progress, and tells them to pause, or to take another place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from paceline.cluster.protocol import RankKey
from paceline.training.link import Broken, FromRank, Joined, Moving, Parked, Progress, RankHello, Stalled, ToRank, encode_to_rank

log = logging.getLogger(__name__)

#: A line that is longer ends its connection. The longest honest one tells of a failure, whose texts are cut (`training.reporting.failures`).
LINE_LIMIT_BYTES = 1 << 20

_decoder: msgspec.json.Decoder[FromRank] = msgspec.json.Decoder(FromRank)


Said = RankHello | Parked | Joined | Progress | Broken | Stalled | Moving


class RankLink:
    """The connections of ranks. `on_message` gets each message of a rank, its hello included, with the rank that the message names.
    Processes are known by birth."""

    def __init__(self, path: Path, on_message: Callable[[RankKey, Said], None]) -> None:
        self._path = path
        self._on_message = on_message
        self._writers: dict[RankKey, asyncio.StreamWriter] = {}
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

    def ask(self, birth: RankKey, request: ToRank) -> bool:
        """Send a request to a process. Returns False while the process is not connected: send it again later."""
        writer = self._writers.get(birth)
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
        except (ConnectionError, msgspec.DecodeError, ValueError) as error:  # ValueError: a line over the stream's limit
            log.warning("a rank's connection ended: %s", error)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        message = _decoder.decode(line) if line else None
        if not isinstance(message, RankHello):
            return
        birth, key = RankKey(message.job_id, message.birth.generation, message.birth.rank), _key_of(message)
        self._writers[birth] = writer
        self._on_message(key, message)
        try:
            async for line in reader:
                message = _decoder.decode(line)
                key = _key_of(message) if isinstance(message, RankHello) else key
                self._on_message(key, message)
        finally:
            if self._writers.get(birth) is writer:
                del self._writers[birth]


def _key_of(hello: RankHello) -> RankKey:
    return RankKey(hello.job_id, hello.generation, hello.rank)
