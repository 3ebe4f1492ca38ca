"""The agent's end of its ranks' Unix socket: hears how far they are, tells them to pause."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from cluster.agent.spawner_link import RankKey
from training.link import FromRank, Joined, PauseRequest, Progress, RankHello, ToRank

log = logging.getLogger(__name__)

_decoder: msgspec.json.Decoder[FromRank] = msgspec.json.Decoder(FromRank)


class RankLink:
    """`on_message` gets what each rank says; the rank is known by its hello."""

    def __init__(self, path: Path, on_message: Callable[[RankKey, Joined | Progress], None]) -> None:
        self._path = path
        self._on_message = on_message
        self._writers: dict[RankKey, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)  # a predecessor's; only one agent holds the data folder's lock
        self._server = await asyncio.start_unix_server(self._on_connection, self._path)
        self._path.chmod(0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def ask(self, key: RankKey, request: ToRank) -> bool:
        """False while the rank is not connected: ask again later."""
        writer = self._writers.get(key)
        if writer is None or writer.is_closing():
            return False
        writer.write(msgspec.json.encode(request) + b"\n")
        return True

    def pause(self, key: RankKey) -> bool:
        return self.ask(key, PauseRequest())

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
        hello = _decoder.decode(line) if line else None
        if not isinstance(hello, RankHello):
            return
        key = RankKey(hello.job_id, hello.generation, hello.rank)
        self._writers[key] = writer
        try:
            async for line in reader:
                message = _decoder.decode(line)
                if not isinstance(message, RankHello):
                    self._on_message(key, message)
        finally:
            if self._writers.get(key) is writer:
                del self._writers[key]
