"""An API server of Kubernetes that listens: the objects of `fake_kubernetes` over HTTP, and watches of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.cluster.provisioners.fake_kubernetes import Change, FakeKubernetes
from tests.ports import HOST


class KubernetesServer:
    """Answers one request on each connection. A test says how watches go: `cut`, `forgotten`, `is_held`, `refusal`."""

    def __init__(self) -> None:
        self.api = FakeKubernetes()
        self.port = 0
        self.watches: list[dict[str, str]] = []  # the parameters of each, in order
        self.lists = 0
        self.open: list[str] = []  # the kinds that are watched now
        self.refusal = 0  # the status of each watch
        self.forgotten = 0  # what came up to this version cannot be watched any more
        self.forgets_by_event = False
        self.is_held = False  # what happens is not told yet
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def bookmark(self, plural: str) -> None:
        """Tell the watches of a kind how far they are, without an object."""
        self.api.version += 1
        self._tell(plural, {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": str(self.api.version)}}})

    def say(self, plural: str, line: bytes) -> None:
        """Tell the watches of a kind this line."""
        self.api.version += 1
        self.api.changes.append(Change(self.api.version, plural, line))
        self._wake()

    def cut(self, rest: bytes = b"") -> None:
        """Break the connections of all watches, after the begin of a line."""
        for writer in self._writers:
            writer.write(b"%x\r\n%s\r\n" % (len(rest), rest) if rest else b"")
            writer.close()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[KubernetesServer]:
        server = await asyncio.start_server(self._answer, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.cut()
            server.close()
            await server.wait_closed()

    def _tell(self, plural: str, event: object) -> None:
        self.api.changes.append(Change(self.api.version, plural, json.dumps(event).encode() + b"\n"))
        self._wake()

    def _wake(self) -> None:
        changed, self.api.changed = self.api.changed, asyncio.Event()
        changed.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _request(reader)
            parameters = {name: values[-1] for name, values in parse_qs(request.url.query.decode()).items()}
            if parameters.get("watch") == "true":
                await self._watch(reader, writer, request.url.path.rpartition("/")[2], parameters)
            else:
                self.lists += "labelSelector" in parameters
                await _send(writer, await self.api.handle_async_request(request))
        except (httpx.ConnectError, OSError, asyncio.IncompleteReadError):
            pass  # a server that is down, or a client that has gone
        finally:
            writer.close()

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, plural: str, parameters: dict[str, str]) -> None:
        self.watches.append({"plural": plural, **parameters})
        since = int(parameters["resourceVersion"])
        expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": f"too old resource version: {since}"}
        if self.api.down:
            return
        if self.refusal or (since < self.forgotten and not self.forgets_by_event):
            refused = {"message": f"{plural} is forbidden: cannot watch resource"} if self.refusal else expired
            await _send(writer, httpx.Response(self.refusal or 410, json=refused))
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        if since < self.forgotten:
            since = self.api.version
            self._chunk(writer, json.dumps({"type": "ERROR", "object": expired}).encode() + b"\n")
        self._writers.add(writer)
        self.open.append(plural)
        gone = asyncio.create_task(reader.read(1))
        try:
            await self._stream(writer, plural, since, gone)
        finally:
            gone.cancel()
            self.open.remove(plural)
            self._writers.discard(writer)

    async def _stream(self, writer: asyncio.StreamWriter, plural: str, since: int, gone: asyncio.Task[bytes]) -> None:
        told = sum(change.version <= since for change in self.api.changes)
        while not writer.is_closing() and not gone.done():
            changed = self.api.changed
            while told < len(self.api.changes) and not self.is_held:
                change, told = self.api.changes[told], told + 1
                if change.plural == plural:
                    self._chunk(writer, change.line)
            await writer.drain()
            await asyncio.wait([gone, asyncio.ensure_future(changed.wait())], return_when=asyncio.FIRST_COMPLETED)

    def _chunk(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        """Send a line in two pieces, as any line may come."""
        for piece in (line[: len(line) // 2], line[len(line) // 2 :]):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))


async def _request(reader: asyncio.StreamReader) -> httpx.Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    lengths = [int(value) for name, value in headers.items() if name.lower() == "content-length"]
    body = await reader.readexactly(lengths[0]) if lengths else b""
    parts = urlsplit(target)
    return httpx.Request(method, f"http://{HOST}{parts.path}?{parts.query}", headers=headers, content=body)


async def _send(writer: asyncio.StreamWriter, answer: httpx.Response) -> None:
    head = f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(answer.content)}\r\nConnection: close\r\n\r\n".encode() + answer.content)
    await writer.drain()
