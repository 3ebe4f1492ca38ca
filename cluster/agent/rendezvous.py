"""Where a script's ranks meet: the first node's agent picks a free port and tells the others through the gang's store."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket

from distributed.errors import StoreRefusedError, StoreTimeoutError, StoreUnreachableError
from distributed.store_wire import LENGTH, Get, Hello, Ok, Refused, Reply, Request, Set, check_length, decode_reply, encode
from training.link import World

MASTER_PORT_KEY = "master_port"
MASTER_PORT_TIMEOUT_SECONDS = 60.0
CONNECT_RETRY_SECONDS = 0.1


async def master_port(world: World, ports: range | None = None) -> int:
    """The same port on every node of this generation, of `ports` if there is such a range. Raises one of `distributed.errors`."""
    try:
        async with asyncio.timeout(MASTER_PORT_TIMEOUT_SECONDS):
            reader, writer = await _connect(world)
            try:
                return await _agree(world, ports, reader, writer)
            finally:
                writer.close()
    except TimeoutError:
        where = f"{world.store_host}:{world.store_port}"
        raise StoreTimeoutError(
            f"no {MASTER_PORT_KEY} from the rendezvous store at {where} after {MASTER_PORT_TIMEOUT_SECONDS:g} s"
        ) from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise StoreUnreachableError(f"the rendezvous store at {world.store_host}:{world.store_port} went away: {error}") from error


async def _connect(world: World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(world.store_host, world.store_port)
        except OSError:  # the first node's agent may be restarting; the caller's timeout ends this
            await asyncio.sleep(CONNECT_RETRY_SECONDS * random.uniform(0.5, 1.5))


async def _agree(world: World, ports: range | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    timeout = MASTER_PORT_TIMEOUT_SECONDS
    await _ask(Hello(world.job_id, world.generation, world.store_token, timeout), reader, writer)
    if world.node_rank == 0 and world.local_rank == 0:
        await _ask(Set(MASTER_PORT_KEY, str(free_port(world.store_host, ports)).encode()), reader, writer)
    value = await _ask(Get(MASTER_PORT_KEY, timeout), reader, writer)
    assert isinstance(value, bytes)
    return int(value)


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


def free_port(host: str, ports: range | None = None) -> int:
    """Free now; whoever binds it first has it. Raises OSError where none of `ports` is."""
    if ports is None:
        return _bind(host, 0)
    for port in random.sample(ports, len(ports)):  # gangs that start at the same moment should not all take the first
        with contextlib.suppress(OSError):
            return _bind(host, port)
    raise OSError(f"none of ports {ports.start}-{ports.stop - 1} of {host} is free; widen --port-range")


def _bind(host: str, port: int) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, port))
        return int(probe.getsockname()[1])
