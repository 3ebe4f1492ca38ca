"""The orders of ranks, and the variables that they are started with: which of the node's, Paceline's and the job's own wins."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.ranks.launch import SlotCards, order_for, prepare
from paceline.cluster.agent.ranks.rendezvous import RendezvousPoint
from paceline.distributed.store_server import StoreServer
from paceline.training.link import RankOrder, RankPlace
from paceline.training.schema.script import Script
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import script_job, training_job, world


async def choose(_: RankPlace, __: Script) -> RendezvousPoint:
    return RendezvousPoint(port=29500, served=True)


@pytest.fixture
async def store() -> AsyncIterator[StoreServer]:
    store = StoreServer()
    yield store
    await store.close()


async def environment(tmp_path: Path, store: StoreServer, inherited: dict[str, str], **variables: str) -> dict[str, str]:
    spec = script_job(tmp_path / "x.py", "print(1)") | {"environment": {"variables": variables}}
    place = world("job1", 0, 2, interface="eth0", store_port=await store.start("127.0.0.1"))
    await store.admit("job1", 1, "token")
    order = RankOrder(spec=StoredSpec(spec), world=place, folder=str(tmp_path / "rank"), agent_socket="")
    return (await prepare(order, SlotCards((), hides_cards=False), [0, 1], choose, inherited=inherited)).environment


OWNERS = {"NCCL_SOCKET_IFNAME": "ib0", "OMP_NUM_THREADS": "4", "RANK": "7", "MASTER_PORT": "1"}


async def test_what_the_nodes_owner_has_exported_wins_over_ours_and_the_jobs_own_over_both(store: StoreServer, tmp_path: Path) -> None:
    """An interface and a number of threads that were chosen for the machine were overwritten, though torchrun keeps them."""
    found = await environment(tmp_path, store, OWNERS, GLOO_SOCKET_IFNAME="bond0")
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"], found["OMP_NUM_THREADS"]) == ("ib0", "bond0", "4")
    assert (found["RANK"], found["MASTER_PORT"]) == ("0", "29500"), "its place is not the owner's to choose"


async def test_the_jobs_own_number_of_threads_wins(store: StoreServer, tmp_path: Path) -> None:
    assert (await environment(tmp_path, store, OWNERS, OMP_NUM_THREADS="2"))["OMP_NUM_THREADS"] == "2"


async def test_without_a_choice_it_is_as_under_torchrun_and_by_the_nodes_own_interface(store: StoreServer, tmp_path: Path) -> None:
    found = await environment(tmp_path, store, {})
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"], found["OMP_NUM_THREADS"]) == ("eth0", "eth0", "1")


def test_ranks_of_two_agents_of_one_host_are_on_one_machine(tmp_path: Path) -> None:
    """They had counted as two, to rings, hierarchies and `communication: auto`."""
    folder, spec = AgentFolder(tmp_path), StoredSpec(training_job())
    first, second = (order_for(world("job", node_rank=node), spec, folder, tmp_path, None).world for node in (0, 1))
    assert first.machine == second.machine == platform.node()


def test_ranks_whose_hosts_are_not_known_are_on_a_machine_for_each_node() -> None:
    assert world("job", node_rank=0).machine != world("job", node_rank=1).machine
