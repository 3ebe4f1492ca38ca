"""The store in which a script's ranks meet: what the agent asks of its spawner, and what the spawner does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from paceline.cluster.agent.ports import listen
from paceline.cluster.agent.processes import STORE_SCORE
from paceline.cluster.agent.served_stores import ServedStores
from paceline.cluster.agent.spawner_link import EndStore, ProcessList, ServedStore, ServeStore
from paceline.cluster.protocol import GenerationKey
from paceline.training.schema.script import Script
from tests.cluster.agent.conftest import world
from tests.cluster.agent.spawners import TIMEOUT_SECONDS, Agent, Node
from tests.processes import is_alive
from tests.waiting import wait_until

KEY = GenerationKey("job", 1)
HOST = "127.0.0.1"
PYTHON = Script(path="train.py")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """With the real trainer: the store is torch's."""
    node = Node(tmp_path_factory.mktemp("node") / "agent", trainer="paceline.training.main")
    yield node
    node.end()


def store_of(agent: Agent, key: GenerationKey) -> ServedStore:
    while True:
        found = [store for store in agent.process_list.stores or () if store.key == key]
        if found:
            return found[0]
        agent.read()


def end(node: Node, *keys: GenerationKey) -> None:
    for key in keys:
        node.agent.say(EndStore(key=key))
    while node.agent.process_list.stores:
        node.agent.read()
    wait_until(lambda: not processes(node), "the end of the stores", seconds=TIMEOUT_SECONDS)


def processes(node: Node) -> list[psutil.Process]:
    """Those that the spawner has started and not ended; it reaps the others in a moment."""
    return [child for child in psutil.Process(node.process.pid).children() if is_alive(child)]


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def test_a_store_that_a_script_fills_counts_as_a_rank_for_the_memory_killer(node: Node) -> None:
    """It was spared as its spawner is, and the ranks of other jobs were ended in its place."""
    node.agent.say(ServeStore(key=KEY, host=HOST))
    store_of(node.agent, KEY)
    (process,) = processes(node)
    score = Path(f"/proc/{process.pid}/oom_score_adj")
    wait_until(lambda: int(score.read_text()) == STORE_SCORE, "its score", seconds=TIMEOUT_SECONDS)
    end(node, KEY)


def test_ranks_meet_in_a_store_that_is_none_of_theirs(node: Node) -> None:
    node.agent.say(ServeStore(key=KEY, host=HOST))
    port = store_of(node.agent, KEY).port
    assert port is not None
    first, second = (TCPStore(HOST, port, is_master=False) for _ in range(2))
    first.set("from", "the first")
    del first
    assert second.get("from") == b"the first"
    end(node, KEY)
    wait_until(lambda: not listening(port), "the end of the store", seconds=TIMEOUT_SECONDS)


def test_asking_twice_serves_one_and_each_generation_has_its_own(node: Node) -> None:
    later = GenerationKey("job", 2)
    for key in (KEY, KEY, later):
        node.agent.say(ServeStore(key=key, host=HOST))
    ports = {store_of(node.agent, key).port for key in (KEY, later)}
    assert len(ports) == 2
    assert len(processes(node)) == 2
    end(node, KEY, later)


def test_a_store_that_dies_by_itself_is_no_longer_told_of(node: Node) -> None:
    node.agent.say(ServeStore(key=KEY, host=HOST))
    store_of(node.agent, KEY)
    (process,) = processes(node)
    process.kill()
    while node.agent.process_list.stores:
        node.agent.read()
    assert not is_alive(process)


def test_what_keeps_it_from_being_served_is_told(node: Node) -> None:
    with listen(HOST) as taken:
        port = taken.getsockname()[1]
        node.agent.say(ServeStore(key=KEY, host=HOST, ports=(port, port + 1)))
        refused = store_of(node.agent, KEY)
    assert (refused.port, refused.error) == (None, f"none of ports {port}-{port} of {HOST} is free; widen --port-range")
    end(node, KEY)


# -- the agent's side


def process_list(*stores: ServedStore) -> ProcessList:
    return ProcessList(spawner_pid=1, ranks=(), stores=stores)


async def test_an_order_that_went_to_a_lost_spawner_is_sent_to_the_next() -> None:
    sent: list[object] = []
    stores = ServedStores(lambda message: sent.append(message) or True, None)  # type: ignore[func-returns-value]
    choosing = asyncio.create_task(stores.choose(world("job"), PYTHON))
    await asyncio.sleep(0)
    stores.apply(process_list(), first=True)
    assert sent == [ServeStore(key=KEY, host=HOST)] * 2
    stores.apply(process_list(ServedStore(key=KEY, port=1234)), first=False)
    point = await choosing
    assert (point.port, point.served) == (1234, True)
    stores.keep([KEY])
    assert len(sent) == 2
    stores.keep([])
    assert sent[2:] == [EndStore(key=KEY)]


@pytest.mark.parametrize("script", [PYTHON, Script(command=("torchrun", "train.py"))], ids=["old spawner", "launcher"])
async def test_otherwise_the_port_is_free_for_the_scripts_rank_0(script: Script) -> None:
    stores = ServedStores(lambda _: True, None)
    stores.apply(ProcessList(spawner_pid=1, ranks=()), first=True)
    point = await stores.choose(world("job"), script)
    assert not point.served
    assert not listening(point.port)


async def test_a_store_that_cannot_be_served_keeps_the_rank_from_starting(tmp_path: Path) -> None:
    stores = ServedStores(lambda _: True, None)
    choosing = asyncio.create_task(stores.choose(world("job"), PYTHON))
    await asyncio.sleep(0)
    stores.apply(process_list(ServedStore(key=KEY, error="no room")), first=False)
    with pytest.raises(OSError, match=r"cannot be served at 127\.0\.0\.1: no room"):
        await choosing
