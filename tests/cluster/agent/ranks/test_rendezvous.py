from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from paceline.cluster.agent.ranks import rendezvous
from paceline.cluster.agent.ranks.rendezvous import RendezvousPoint, agree_on_rendezvous
from paceline.distributed import store_server
from paceline.distributed.errors import StoreRefusedError, StoreUnreachableError
from paceline.distributed.store_server import StoreServer
from paceline.distributed.store_wire import Reply, Request
from paceline.training.link import RankPlace
from tests.cluster.agent.conftest import world
from tests.ports import free_port

TIMEOUT_SECONDS = 10.0


@pytest.fixture
async def store() -> AsyncIterator[StoreServer]:
    store = StoreServer()
    yield store
    await store.close()


def member(port: int, node_rank: int, generation: int = 2) -> RankPlace:
    return world("job", rank=node_rank, world_size=2, generation=generation, store_port=port, node_rank=node_rank, local_rank=0)


POINT = RendezvousPoint(port=29500, served=True)


async def choose() -> RendezvousPoint:
    return POINT


async def never() -> RendezvousPoint:
    raise AssertionError("only the first node decides")


async def test_all_nodes_agree_on_the_first_nodes_choice(store: StoreServer) -> None:
    port = await store.start("127.0.0.1")
    later = asyncio.create_task(agree_on_rendezvous(member(port, 1), never))
    await store.admit("job", 2, "token")
    assert await agree_on_rendezvous(member(port, 0), choose) == POINT
    assert await later == POINT


async def test_an_older_generation_gets_none(store: StoreServer) -> None:
    port = await store.start("127.0.0.1")
    await store.admit("job", 1, "token")
    await store.admit("job", 2, "token")
    with pytest.raises(StoreRefusedError, match="stale generation 1"):
        await agree_on_rendezvous(member(port, 0, generation=1), choose)


async def test_a_store_that_comes_later_is_waited_for(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    port, refused, connect = free_port(), asyncio.Event(), asyncio.open_connection

    async def notice_refusals(*where: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await connect(*where)
        except OSError:
            refused.set()
            raise

    monkeypatch.setattr(asyncio, "open_connection", notice_refusals)
    waiting = asyncio.create_task(agree_on_rendezvous(member(port, 0), choose))
    await store.admit("job", 2, "token")
    await asyncio.wait_for(refused.wait(), TIMEOUT_SECONDS)
    await store.start("127.0.0.1", port)
    assert await waiting == POINT


async def test_a_first_node_that_cannot_decide_says_why(store: StoreServer) -> None:
    async def refuse() -> RendezvousPoint:
        raise OSError("none of ports 1-2 of 127.0.0.1 is free")

    port = await store.start("127.0.0.1")
    await store.admit("job", 2, "token")
    with pytest.raises(OSError, match="none of ports 1-2"):
        await agree_on_rendezvous(member(port, 0), refuse)


async def test_a_first_node_that_prepares_for_long_is_waited_for(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "KEY_TIMEOUT_SECONDS", 0.02)
    port = await store.start("127.0.0.1")
    await store.admit("job", 2, "token")
    ready_first = asyncio.create_task(agree_on_rendezvous(member(port, 1), never))
    ended, _ = await asyncio.wait({ready_first}, timeout=0.2)
    assert not ended
    assert await agree_on_rendezvous(member(port, 0), choose) == POINT
    assert await asyncio.wait_for(ready_first, TIMEOUT_SECONDS) == POINT


async def test_a_node_that_waits_outlasts_the_first_nodes_agent(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    port, waits, answer = await store.start("127.0.0.1", free_port()), asyncio.Event(), store_server.answer

    async def notice_waits(namespace: store_server.Namespace, request: Request) -> Reply:
        waits.set()
        return await answer(namespace, request)

    monkeypatch.setattr(store_server, "answer", notice_waits)
    await store.admit("job", 2, "token")
    ready_first = asyncio.create_task(agree_on_rendezvous(member(port, 1), never))
    await asyncio.wait_for(waits.wait(), TIMEOUT_SECONDS)
    await store.close()
    after = StoreServer()
    await after.start("127.0.0.1", port)
    try:
        await after.admit("job", 2, "token")
        assert await agree_on_rendezvous(member(port, 0), choose) == POINT
        assert await asyncio.wait_for(ready_first, TIMEOUT_SECONDS) == POINT
    finally:
        await after.close()


async def test_a_store_that_stays_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "CONNECT_TIMEOUT_SECONDS", 0.1)
    port = free_port()
    with pytest.raises(StoreUnreachableError, match=f"no rendezvous store at 127.0.0.1:{port} after 0.1 s"):
        await agree_on_rendezvous(member(port, 1), never)
