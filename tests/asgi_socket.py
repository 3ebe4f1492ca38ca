"""A WebSocket client that talks to an ASGI app in this event loop: the real protocol without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

RECEIVE_SECONDS = 30.0


class SocketClosedError(Exception):
    """The app closed the socket, or refused it. `code` is why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"closed with {code}: {reason}")
        self.code = code


class ReadQueue(asyncio.Queue[dict[str, Any]]):
    """A queue whose `join` waits until each item is taken."""

    async def get(self) -> dict[str, Any]:
        item = await super().get()
        self.task_done()
        return item


class AsgiSocket:
    """One connection. `most_unread`: with so many messages unread, the app's next one waits, as on a full connection; 0: never."""

    def __init__(self, app: FastAPI, path: str, headers: Mapping[str, str], *, query: str = "", most_unread: int = 0) -> None:
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._scope = {
            "type": "websocket",
            "asgi": {"version": "3.0"},
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1:8000"), *encoded],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
            "subprotocols": [],
        }
        self._app = app
        self._to_app = ReadQueue()
        self._from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue(most_unread)
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._task = asyncio.create_task(self._app(self._scope, self._to_app.get, self._from_app.put))  # type: ignore[arg-type]
        await self._to_app.put({"type": "websocket.connect"})
        message = await self._next()
        assert message["type"] == "websocket.accept", message

    async def send(self, text: str) -> None:
        await self._to_app.put({"type": "websocket.receive", "text": text})

    async def send_bytes(self, content: bytes) -> None:
        await self._to_app.put({"type": "websocket.receive", "bytes": content})

    async def receive_bytes(self) -> bytes:
        return bytes((await self._next())["bytes"])

    async def receive(self) -> str:
        return str((await self._next())["text"])

    async def everything_read(self) -> None:
        """Wait until the app has taken all that was sent to it."""
        await self._to_app.join()

    async def close(self, code: int = 1001) -> None:
        """As a peer that goes away; or with 1012, as uvicorn tells that it goes away itself."""
        if self._task is None or self._task.done():
            return
        await self._to_app.put({"type": "websocket.disconnect", "code": code})
        await asyncio.wait_for(asyncio.shield(self._task), RECEIVE_SECONDS)

    async def vanish(self) -> None:
        """As when the app's process is killed: it gets no chance to do anything any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _next(self) -> dict[str, Any]:
        message = await asyncio.wait_for(self._from_app.get(), RECEIVE_SECONDS)
        if message["type"] == "websocket.close":
            raise SocketClosedError(message.get("code", 1000), message.get("reason") or "")
        return message
