"""Where a script's ranks meet: the first node's agent decides and tells the others through the gang's store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from distributed.errors import StoreRefusedError, StoreTimeoutError, StoreUnreachableError
from distributed.store_wire import LENGTH, Get, Hello, Ok, Refused, Reply, Request, Set, check_length, decode_reply, encode
from training.link import World

MEETING_POINT_KEY = "meeting_point"
MEETING_POINT_TIMEOUT_SECONDS = 60.0
CONNECT_RETRY_SECONDS = 0.1


class MeetingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the gang's first node: that of a store which its agent serves, or a free one on which the script's rank 0 serves its own."""

    port: int
    served: bool


async def meeting_point(world: World, choose: Callable[[], Awaitable[MeetingPoint]]) -> MeetingPoint:
    """The same on every node of this generation: what `choose` gives on its first one. Raises one of `distributed.errors`, and what
    `choose` raises."""
    try:
        async with asyncio.timeout(MEETING_POINT_TIMEOUT_SECONDS):
            reader, writer = await _connect(world)
            try:
                return await _agree(world, choose, reader, writer)
            finally:
                writer.close()
    except TimeoutError:
        where = f"{world.store_host}:{world.store_port}"
        raise StoreTimeoutError(
            f"no {MEETING_POINT_KEY} from the rendezvous store at {where} after {MEETING_POINT_TIMEOUT_SECONDS:g} s"
        ) from None
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        raise StoreUnreachableError(f"the rendezvous store at {world.store_host}:{world.store_port} went away: {error}") from error


async def _connect(world: World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(world.store_host, world.store_port)
        except OSError:  # the first node's agent may be restarting; the caller's timeout ends this
            await asyncio.sleep(CONNECT_RETRY_SECONDS * random.uniform(0.5, 1.5))


async def _agree(
    world: World, choose: Callable[[], Awaitable[MeetingPoint]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> MeetingPoint:
    timeout = MEETING_POINT_TIMEOUT_SECONDS
    await _ask(Hello(world.job_id, world.generation, world.store_token, timeout), reader, writer)
    if world.node_rank == 0 and world.local_rank == 0:
        await _ask(Set(MEETING_POINT_KEY, msgspec.json.encode(await choose())), reader, writer)
    value = await _ask(Get(MEETING_POINT_KEY, timeout), reader, writer)
    assert isinstance(value, bytes)
    return msgspec.json.decode(value, type=MeetingPoint)


async def _ask(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | int | bool | None:
    writer.write(encode(request))
    await writer.drain()
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return _content(decode_reply(await reader.readexactly(check_length(length))))


def _content(reply: Reply) -> bytes | int | bool | None:
    match reply:
        case Ok(value=value):
            return value
        case Refused(message=message):
            raise StoreRefusedError(message)
        case _:
            raise StoreTimeoutError(reply.message)
