"""The rendezvous of a script's ranks: the agent of the first node decides, and tells the other nodes through the gang's store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from paceline.distributed.errors import StoreRefusedError, StoreTimeoutError, StoreUnreachableError
from paceline.distributed.store_wire import LENGTH, Get, Hello, Ok, Refused, Reply, Request, Set, check_length, decode_reply, encode
from paceline.monitoring.backoff import Backoff
from paceline.training.link import RankPlace

MEETING_POINT_KEY = "meeting_point"
#: How long the store's agent may be away; how long one request waits for the first node's choice before it is sent again.
CONNECT_TIMEOUT_SECONDS = KEY_TIMEOUT_SECONDS = 60.0
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 0.15


class RendezvousPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the gang's first node: of a store which its agent serves, or a free port on which the script's rank 0 serves a store of
    its own."""

    port: int
    served: bool


async def agree_on_rendezvous(world: RankPlace, choose: Callable[[], Awaitable[RendezvousPoint]]) -> RendezvousPoint:
    """The rendezvous of this generation, equal on all of its nodes: the result of `choose` on the first node, which is waited for however
    long that node prepares packages or its agent starts again. Whoever launches the rank cancels the wait along with the generation.
    Raises `StoreUnreachableError` where the store's agent stays away, `StoreRefusedError`, and what `choose` raises."""
    backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    while True:
        reader, writer = await _connect(world)
        try:
            return await _agree(world, choose, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):  # the next agent of that node serves the store, and has forgotten its keys
            await backoff.pause()
        finally:
            writer.close()


async def _connect(world: RankPlace) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    backoff, reason = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS), ""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            while True:
                try:
                    return await asyncio.open_connection(world.store_host, world.store_port)
                except OSError as error:  # the first node's agent may be restarting
                    reason = f": {error}"
                    await backoff.pause()
    except TimeoutError:
        where = f"{world.store_host}:{world.store_port}"
        raise StoreUnreachableError(f"no rendezvous store at {where} after {CONNECT_TIMEOUT_SECONDS:g} s{reason}") from None


async def _agree(
    world: RankPlace, choose: Callable[[], Awaitable[RendezvousPoint]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> RendezvousPoint:
    await _ask(Hello(world.job_id, world.generation, world.store_token, CONNECT_TIMEOUT_SECONDS), reader, writer)
    if world.node_rank == 0 and world.local_rank == 0:
        await _ask(Set(MEETING_POINT_KEY, msgspec.json.encode(await choose())), reader, writer)
    while True:
        try:
            value = await _ask(Get(MEETING_POINT_KEY, KEY_TIMEOUT_SECONDS), reader, writer)
        except StoreTimeoutError:  # the first node still prepares
            continue
        assert isinstance(value, bytes)
        return msgspec.json.decode(value, type=RendezvousPoint)


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
