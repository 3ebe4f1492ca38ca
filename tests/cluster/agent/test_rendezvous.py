from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.agent.rendezvous import free_port, master_port
from distributed.errors import StoreRefusedError
from distributed.store_server import StoreServer
from tests.cluster.agent.conftest import world
from training.link import World

TIMEOUT_SECONDS = 10.0


@pytest.fixture
async def store() -> AsyncIterator[StoreServer]:
    store = StoreServer()
    yield store
    await store.close()


def member(port: int, node_rank: int, generation: int = 2) -> World:
    return world("job", rank=node_rank, world_size=2, generation=generation, store_port=port, node_rank=node_rank, local_rank=0)


async def test_all_nodes_agree_on_the_first_nodes_choice(store: StoreServer) -> None:
    port = await store.start("127.0.0.1")
    later = asyncio.create_task(master_port(member(port, 1)))
    await store.admit("job", 2, "token")
    first = await master_port(member(port, 0))
    assert await later == first
    with socket.create_server(("127.0.0.1", first)):
        pass


async def test_an_older_generation_gets_none(store: StoreServer) -> None:
    port = await store.start("127.0.0.1")
    await store.admit("job", 1, "token")
    await store.admit("job", 2, "token")
    with pytest.raises(StoreRefusedError, match="stale generation 1"):
        await master_port(member(port, 0, generation=1))


async def test_a_store_that_comes_later_is_waited_for(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    port, refused, connect = free_port("127.0.0.1"), asyncio.Event(), asyncio.open_connection

    async def notice_refusals(*where: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await connect(*where)
        except OSError:
            refused.set()
            raise

    monkeypatch.setattr(asyncio, "open_connection", notice_refusals)
    waiting = asyncio.create_task(master_port(member(port, 0)))
    await store.admit("job", 2, "token")
    await asyncio.wait_for(refused.wait(), TIMEOUT_SECONDS)
    await store.start("127.0.0.1", port)
    assert await waiting > 0


def test_a_port_range_is_kept_to_and_what_is_used_in_it_passed_over() -> None:
    first = free_port("127.0.0.1")
    with socket.create_server(("127.0.0.1", first)):
        ports = range(first, first + 2)
        with pytest.raises(OSError, match=f"none of ports {first}-{first} of"):
            free_port("127.0.0.1", range(first, first + 1))
        assert free_port("127.0.0.1", ports) == first + 1
