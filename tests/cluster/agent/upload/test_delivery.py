"""An upload over a connection that the other end closes just as it is used again is sent once more, on a new one; and only once more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest

from paceline.api.serve import KEEP_ALIVE_S
from paceline.cluster.agent.upload.delivery import KEPT_CONNECTIONS, UploadFailedError, post
from paceline.monitoring.points import UploadReply

ANSWER = msgspec.json.encode(UploadReply(acknowledged=[]))


@asynccontextmanager
async def server(answers: Callable[[int], bool]) -> AsyncIterator[tuple[httpx.AsyncClient, list[int]]]:
    """A client, and the number of the connection of each request that arrived; `answers(n)` tells whether the n-th request, from 1, gets an
    answer; the connection of any other is closed."""
    seen: list[int] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(
                    next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                )
                seen.append(number)
                if not answers(len(seen)):
                    break
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER))
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass  # the client has closed it
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with (
        listening,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", limits=KEPT_CONNECTIONS) as http,
    ):
        yield http, seen


async def test_an_idle_connection_that_is_closed_as_it_is_used_again_costs_no_upload() -> None:
    async with server(lambda request: request != 2) as (http, seen):
        await post(http, b"{}")
        assert await post(http, b"{}") == UploadReply(acknowledged=[])
    assert seen == [1, 1, 2]


async def test_a_coordinator_that_never_answers_is_told_after_the_second_try() -> None:
    async with server(lambda _: False) as (http, seen):
        with pytest.raises(UploadFailedError, match="disconnected"):
            await post(http, b"{}")
    assert seen == [1, 2]


def test_it_is_the_agent_that_closes_an_idle_connection() -> None:
    assert KEPT_CONNECTIONS.keepalive_expiry is not None
    assert KEPT_CONNECTIONS.keepalive_expiry < KEEP_ALIVE_S
