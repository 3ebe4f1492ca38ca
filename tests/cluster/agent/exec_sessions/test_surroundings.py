"""What a command finds beside a rank, and what it must not find."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.exec_sessions.surroundings import ProcessSurroundings, environment_of, remember, surroundings_of
from paceline.cluster.agent.ranks.launch import SlotCards, path_of
from paceline.cluster.agent.spawner_link import Spawn
from paceline.training.link import Interpreter, RankOrder
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import script_job, training_job, world

NO_CARDS = SlotCards((), hides_cards=False)


def order_of(document: dict[str, Any], folder: Path) -> RankOrder:
    folder.mkdir(parents=True)
    return RankOrder(spec=StoredSpec(document), world=world("j", rank=1, world_size=2), folder=str(folder), agent_socket="")


def script_order(tmp_path: Path) -> RankOrder:
    return order_of(script_job(tmp_path / "x.py", "print(1)"), tmp_path / "rank")


def test_a_script_is_remembered_as_it_was_started(tmp_path: Path) -> None:
    order = script_order(tmp_path)
    remember(Spawn(order=order, environment={"MASTER_PORT": "29500"}, program=("python", "x.py"), working_directory="/work"))
    assert surroundings_of(order, NO_CARDS) == ProcessSurroundings(environment={"MASTER_PORT": "29500"}, directory="/work")
    assert RankFolder.at(tmp_path / "rank").launch.stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_ranks_folder_is_neither_written_nor_read_through(tmp_path: Path) -> None:
    order = script_order(tmp_path)
    launch, elsewhere = RankFolder.at(tmp_path / "rank").launch, tmp_path / "elsewhere"
    elsewhere.write_bytes(msgspec.json.encode(ProcessSurroundings(environment={"STOLEN": "1"}, directory="/")))
    launch.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        surroundings_of(order, NO_CARDS)
    remember(Spawn(order=order, environment={}, program=("python",), working_directory="/"))
    assert b"STOLEN" in elsewhere.read_bytes()
    assert surroundings_of(order, NO_CARDS).environment == {}


def test_a_rank_of_the_trainer_has_its_place_and_its_jobs_variables(tmp_path: Path) -> None:
    order = order_of(training_job(), tmp_path / "rank")
    remember(Spawn(order=order, environment={}))
    found = surroundings_of(order, NO_CARDS)
    assert (found.environment["RANK"], found.environment["WORLD_SIZE"], found.directory) == ("1", "2", str(tmp_path / "rank"))
    assert not RankFolder.at(tmp_path / "rank").launch.exists()


def test_the_interface_that_a_job_of_the_trainer_has_chosen_is_that_of_a_command_too(tmp_path: Path) -> None:
    order = order_of(training_job() | {"environment": {"variables": {"NCCL_SOCKET_IFNAME": "ib0"}}}, tmp_path / "rank")
    order = msgspec.structs.replace(order, world=msgspec.structs.replace(order.world, interface="eth0"))
    found = surroundings_of(order, NO_CARDS).environment
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("ib0", "eth0")


@pytest.mark.parametrize(
    ("packages", "has_node"),
    [
        ({"requirements": ["einops"]}, True),
        ({"requirements": ["torch"], "own_torch": True}, False),
        ({"python": "/venv/bin/python"}, False),
    ],
)
def test_a_script_has_the_programs_of_the_node_where_it_has_the_nodes_packages(
    tmp_path: Path, packages: dict[str, Any], has_node: bool
) -> None:
    """Whether its process is forked with the packages warm or not."""
    order = order_of(script_job(tmp_path / "x.py", "print(1)") | {"environment": packages}, tmp_path / "rank")
    order = msgspec.structs.replace(order, interpreter=Interpreter(python="/venv/bin/python"))
    folders = path_of(order)["PATH"].split(os.pathsep)
    assert folders[: 1 + has_node] == ["/venv/bin", os.path.dirname(sys.executable)][: 1 + has_node]
    assert has_node == (os.path.dirname(sys.executable) in folders[:2])


def test_a_command_gets_what_ranks_get_of_the_agent_and_nothing_by_which_it_would_write_as_the_rank(tmp_path: Path) -> None:
    known = ProcessSurroundings(
        environment={"RANK": "0", "PACELINE_RANK_FOLDER": "/r", "TORCHELASTIC_ERROR_FILE": "/r/error.json", "PATH": "/job"}, directory="/"
    )
    agent = {
        "PATH": "/agent",
        "PACELINE_JOIN_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "NAMED": "n",
        "HOME": "/root",
        "XDG_CACHE_HOME": "/c",
    }
    account = Account("eve", 7, 7, "/home/eve", "/bin/zsh")
    found = environment_of(known, agent, ("NAMED",), "s1", tmp_path, account)
    assert found == {
        "PATH": "/job",
        "RANK": "0",
        "NAMED": "n",
        "HOME": "/home/eve",
        "USER": "eve",
        "LOGNAME": "eve",
        "SHELL": "/bin/zsh",
        "PACELINE_AGENT_DATA": str(tmp_path),
        "PACELINE_EXEC_SESSION": "s1",
    }
