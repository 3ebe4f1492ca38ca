"""The variables of a rank's environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from paceline.distributed import env
from tests.ports import free_port
from tests.ranks import make_world

WORLD = make_world(
    3, 4, 0, Path("/checkpoints"), generation=3, restarts=1, local_rank=1, local_world_size=2, node_rank=1, store_host="10.0.0.7"
)
LAUNCH = env.ScriptLaunch(run_id="job", max_restarts=3, master_port=29500, error_file=Path("/rank/error.json"), interface="eth1")
TORCHRUN_SECONDS = 90.0

PRINT_VARIABLES = """
import json, os, sys
with open(f"{sys.argv[1]}/{os.environ['RANK']}", "w") as file:
    json.dump(dict(os.environ), file)
"""


def test_scripts_get_torchruns_variables_and_the_nodes_interface() -> None:
    assert env.script_environment(WORLD, LAUNCH) == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_NAME": "default",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "job",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": "/rank/error.json",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "NCCL_SOCKET_IFNAME": "eth1",
    }


def test_a_script_on_uneven_shares_is_told_how_many_nodes_there_are() -> None:
    uneven = msgspec.structs.replace(WORLD, world_size=6, rank=5, local_rank=1, local_world_size=2, node_count=2)
    found = env.script_environment(uneven, LAUNCH)
    assert (found["GROUP_WORLD_SIZE"], found["LOCAL_WORLD_SIZE"]) == ("2", "2")


@pytest.mark.timeout(150)
def test_torchrun_sets_no_variable_that_a_script_does_not_get_here(tmp_path: Path) -> None:
    """The variables that do not name torchrun's own machinery have the same values, too."""
    (tmp_path / "script.py").write_text(PRINT_VARIABLES)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3", "--rdzv-id", "job"]
    clean = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    subprocess.run(
        [*command, "--master-port", str(free_port()), str(tmp_path / "script.py"), str(tmp_path)],
        env=clean,
        check=True,
        timeout=TORCHRUN_SECONDS,
        capture_output=True,
    )
    theirs = json.loads((tmp_path / "1").read_text())
    world = make_world(1, 2, 0, Path("/checkpoints"), local_rank=1, local_world_size=2, node_rank=0, store_host="127.0.0.1")
    ours = env.script_environment(world, replace(LAUNCH, interface=None, store_is_served=True))
    assert set(theirs) - set(clean) - {"TORCHELASTIC_SIGNALS_TO_HANDLE"} <= set(ours)  # which speaks to torchrun's own children only
    of_its_own = {
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_ERROR_FILE",
        "TORCHELASTIC_RUN_ID",
        "PYTHONFAULTHANDLER",
    }
    assert {name: theirs.get(name) for name in ours.keys() - of_its_own} == {name: ours[name] for name in ours.keys() - of_its_own}


@pytest.mark.parametrize(
    ("local", "total", "host", "threads"),
    [
        (1, 1, "10.0.0.7", None),  # it has the machine for itself
        (1, 2, "10.0.0.7", None),
        (2, 2, "10.0.0.7", "1"),
        (1, 2, "127.0.0.1", "1"),  # its peers are nodes of the same machine
        (1, 2, "::1", "1"),
        (1, 1, "127.0.0.1", None),
    ],
)
def test_ranks_that_share_a_machine_have_one_thread_each(local: int, total: int, host: str, threads: str | None) -> None:
    world = make_world(0, total, 0, Path("/checkpoints"), local_rank=0, local_world_size=local, node_rank=0, store_host=host)
    assert env.script_environment(world, LAUNCH).get("OMP_NUM_THREADS") == threads


def test_a_process_reads_back_the_place_it_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    assert env.position() == env.Position(rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    env.export_rank(WORLD, "eth0", Path("/data/rank1"))
    assert env.position() == env.Position(rank=3, world_size=4, local_rank=1, local_world_size=2, node_rank=1)
    assert environment["GLOO_SOCKET_IFNAME"] == "eth0"


def test_an_interface_that_the_job_or_the_nodes_owner_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was overwritten, and NCCL went over the slow network."""
    environment = {"NCCL_SOCKET_IFNAME": "ib0"}
    monkeypatch.setattr("os.environ", environment)
    env.export_rank(WORLD, "eth0", Path("/data/rank1"))
    assert (environment["NCCL_SOCKET_IFNAME"], environment["GLOO_SOCKET_IFNAME"]) == ("ib0", "eth0")
    env.export_rank(WORLD, "eth1", Path("/data/rank1"), former="eth0")  # its node is reached otherwise in the next generation
    assert (environment["NCCL_SOCKET_IFNAME"], environment["GLOO_SOCKET_IFNAME"]) == ("ib0", "eth1")


@pytest.mark.parametrize(("value", "threads"), [("", 1), ("4", 4), ("0", 1), ("many", 1)])
def test_threads_are_one_per_slot_unless_the_job_says_otherwise(monkeypatch: pytest.MonkeyPatch, value: str, threads: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert env.intra_op_threads() == threads


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.delenv("PACELINE_CACHE", raising=False)
    assert env.cache_directory() == Path("/cache/paceline")
    monkeypatch.setenv("PACELINE_CACHE", "/elsewhere")
    assert env.cache_directory() == Path("/elsewhere")


@pytest.mark.parametrize(("visible", "index"), [(None, 3), ("0,1,2,3", 3), ("GPU-8f2c", 0), ("3", 0)])
def test_a_rank_that_sees_its_own_card_alone_has_it_as_the_first(monkeypatch: pytest.MonkeyPatch, visible: str | None, index: int) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert env.device_index(3) == index
