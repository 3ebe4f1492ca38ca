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
MEETING_POINT_TIMEOUT_SECONDS = 60.0
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 0.15


class RendezvousPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the gang's first node: of a store which its agent serves, or a free port on which the script's rank 0 serves a store of
    its own."""

    port: int
    served: bool


async def agree_on_rendezvous(world: RankPlace, choose: Callable[[], Awaitable[RendezvousPoint]]) -> RendezvousPoint:
    """The rendezvous of this generation, equal on all of its nodes: the result of `choose` on the first node. Raises one of
    `distributed.errors`, and what `choose` raises."""
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


async def _connect(world: RankPlace) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    while True:
        try:
            return await asyncio.open_connection(world.store_host, world.store_port)
        except OSError:  # the first node's agent may be restarting; the caller's timeout ends this
            await backoff.pause()


async def _agree(
    world: RankPlace, choose: Callable[[], Awaitable[RendezvousPoint]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> RendezvousPoint:
    timeout = MEETING_POINT_TIMEOUT_SECONDS
    await _ask(Hello(world.job_id, world.generation, world.store_token, timeout), reader, writer)
    if world.node_rank == 0 and world.local_rank == 0:
        await _ask(Set(MEETING_POINT_KEY, msgspec.json.encode(await choose())), reader, writer)
    value = await _ask(Get(MEETING_POINT_KEY, timeout), reader, writer)
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
