"""torch's contract for stores, against the server that agents run, and a real gloo group over it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from paceline.distributed.abort import GroupAborter
from paceline.distributed.errors import StoreRefusedError, StoreRequestError, StoreTimeoutError, StoreUnreachableError
from paceline.distributed.joining import await_all, join, meet
from paceline.distributed.store import RendezvousStore
from paceline.training.link import RankPlace
from tests.ranks import StoreThread, make_world, run_ranks, store_server

HERE = Path("/nonexistent")
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def server() -> Iterator[StoreThread]:
    with store_server() as server:
        server.admit(1)
        yield server


@pytest.fixture
def store(server: StoreThread) -> Iterator[RendezvousStore]:
    store = RendezvousStore(make_world(0, 1, server.port, HERE))
    yield store
    store.close()


def test_set_get_add_check_delete_count(store: RendezvousStore) -> None:
    store.set("key", "value")
    store.set("bytes", bytes(range(256)))
    assert (store.get("key"), store.get("bytes")) == (b"value", bytes(range(256)))
    assert [store.add("counter", amount) for amount in (5, -2)] == [5, 3]
    assert (store.check(["key", "counter"]), store.check(["key", "absent"])) == (True, False)
    assert store.num_keys() == 3
    assert (store.delete_key("key"), store.delete_key("key")) == (True, False)


def test_compare_set(store: RendezvousStore) -> None:
    assert store.compare_set("key", "wrong", "new") == b"wrong"
    assert store.compare_set("key", "", "first") == b"first"
    assert store.compare_set("key", "wrong", "new") == b"first"
    assert store.compare_set("key", "first", "second") == b"second"


def test_get_waits_for_another_rank(server: StoreThread, store: RendezvousStore) -> None:
    other, got = store.clone(), []
    waiting = threading.Thread(target=lambda: got.append(other.get("later")))
    waiting.start()
    store.set("later", b"now")
    waiting.join(10)
    other.close()
    assert got == [b"now"]


def test_waits_end_and_the_connection_goes_on(store: RendezvousStore) -> None:
    with pytest.raises(StoreTimeoutError, match=r"no key absent after 0.05 s"):
        store.wait(["absent"], timedelta(seconds=0.05))
    store.set_timeout(timedelta(seconds=0.05))
    with pytest.raises(StoreTimeoutError):
        store.get("absent")
    assert store.num_keys() == 0


def test_nonsense_is_refused_and_the_connection_goes_on(store: RendezvousStore) -> None:
    store.set("word", "seven")
    with pytest.raises(StoreRequestError, match="not a number"):
        store.add("word", 1)
    assert store.get("word") == b"seven"


def test_a_newer_generation_fences_the_older_one(server: StoreThread, store: RendezvousStore) -> None:
    server.admit(2)
    with pytest.raises(StoreRefusedError, match="stale generation 1; the current one is 2"):
        store.get("anything")
    with pytest.raises(StoreRefusedError, match="stale generation"):
        RendezvousStore(make_world(0, 1, server.port, HERE))


def test_a_wrong_token_is_refused(server: StoreThread) -> None:
    with pytest.raises(StoreRefusedError, match="the store token is wrong"):
        RendezvousStore(make_world(0, 1, server.port, HERE, store_token="guess"))


def test_a_store_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreUnreachableError, match=r"no rendezvous store at 127.0.0.1:1 after 0.05 s"):
        RendezvousStore(make_world(0, 1, 1, HERE), connect_timeout=0.05)


def test_a_prefix_keeps_keys_apart(store: RendezvousStore) -> None:
    first, second = PrefixStore("a", store), PrefixStore("b", store)
    first.set("key", "1")
    second.set("key", "2")
    assert (first.get("key"), second.get("key")) == (b"1", b"2")


def sum_and_gather(world: RankPlace) -> tuple[list[float], list[str]]:
    group = join(world, GroupAborter())
    total = group.start_sum(torch.tensor([float(world.rank), 1.0]))().tolist()
    names = group.all_gather_object(f"rank {world.rank}")
    group.close()
    return total, names


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_group_meets_in_it(world_size: int) -> None:
    expected = [float(sum(range(world_size))), float(world_size)], [f"rank {rank}" for rank in range(world_size)]
    assert run_ranks(sum_and_gather, world_size) == [expected] * world_size


def test_a_store_that_dies_in_the_middle_of_a_hello_is_tried_again(server: StoreThread) -> None:
    server.stop()
    with socket.create_server(("127.0.0.1", server.port)) as dying, ThreadPoolExecutor() as pool:
        met = pool.submit(meet, make_world(0, 1, server.port, HERE), GroupAborter())
        connection, _ = dying.accept()
        assert connection.recv(1)
        dying.close()
        connection.close()
        server.restart(1)
        met.result(TIMEOUT_SECONDS).close()


class NoticedStore(RendezvousStore):
    """A store that tells when a wait in it has timed out."""

    timed_out: threading.Event

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        try:
            super().wait(keys, timeout)
        except StoreTimeoutError:
            self.timed_out.set()
            raise


def test_a_rank_whose_node_prepares_for_long_is_waited_for(server: StoreThread) -> None:
    early, late = make_world(0, 2, server.port, HERE), make_world(1, 2, server.port, HERE)
    store = NoticedStore(early)
    store.timed_out = threading.Event()
    store.set_timeout(timedelta(seconds=0.05))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(await_all, store, early, GroupAborter())
        assert store.timed_out.wait(TIMEOUT_SECONDS)
        meet(late, GroupAborter()).close()
        waiting.result(TIMEOUT_SECONDS)
    store.close()


def regroup(world: RankPlace) -> list[float]:
    """Leave a group and form another under the next generation's prefix, in the same process."""
    totals = []
    store = RendezvousStore(world)
    for generation in range(3):
        prefixed = PrefixStore(f"g{generation}", store)
        dist.init_process_group("gloo", store=prefixed, rank=world.rank, world_size=world.world_size)
        values = torch.tensor([float(generation)])
        dist.all_reduce(values)
        dist.destroy_process_group()
        totals.append(values.item())
    return totals


def test_groups_can_be_formed_again_and_again() -> None:
    assert run_ranks(regroup, 2) == [[0.0, 2.0, 4.0]] * 2
