from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from paceline.cluster.agent.ports import free_port
from paceline.cluster.agent.ranks.rendezvous import RendezvousPoint, agree_on_rendezvous
from paceline.distributed.errors import StoreRefusedError
from paceline.distributed.store_server import StoreServer
from paceline.training.link import RankPlace
from tests.cluster.agent.conftest import world

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
    port, refused, connect = free_port("127.0.0.1"), asyncio.Event(), asyncio.open_connection

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
