"""Answers are compressed for clients that accept it, and streams still arrive piece by piece."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message

from paceline.api.middleware.compression import MINIMUM_BYTES, Compression

DOCUMENT = "/api/v1/openapi.json"


async def test_a_large_document_travels_compressed(client: httpx.AsyncClient) -> None:
    plain = await client.get(DOCUMENT, headers={"Accept-Encoding": "identity"})
    packed = await client.get(DOCUMENT, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) * 4 < len(plain.content)
    assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"


async def test_small_answers_and_archives_are_sent_as_they_are() -> None:
    small = Response(b"x" * (MINIMUM_BYTES - 1), media_type="application/json")
    artifact = Response(b"x" * 10_000, media_type="application/octet-stream")
    app = Compression(Starlette(routes=[Route("/small", small), Route("/artifact", artifact)]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://testserver") as client:
        for path in ("/small", "/artifact"):
            assert "content-encoding" not in (await client.get(path, headers={"Accept-Encoding": "gzip"})).headers


@pytest.mark.timeout(10)
async def test_each_part_of_a_stream_is_readable_before_the_next_one_exists() -> None:
    """A buffering compressor would hold the first line back until the stream ends, which it never does here unless the line was read."""
    was_read = asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        yield b"first line\n"
        await was_read.wait()
        yield b"second line\n"

    def streamed(_: Request) -> Response:
        return StreamingResponse(lines(), media_type="text/plain")

    received, decoder = b"", zlib.decompressobj(16 + zlib.MAX_WBITS)

    async def send(message: Message) -> None:
        nonlocal received
        received += decoder.decompress(message.get("body", b""))
        if received == b"first line\n":
            was_read.set()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"accept-encoding", b"gzip")], "query_string": b""}
    await Compression(Starlette(routes=[Route("/", streamed)]))(scope, receive, send)
    assert received == b"first line\nsecond line\n"
