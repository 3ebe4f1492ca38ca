from __future__ import annotations

from pathlib import Path

import pytest

from distributed import env
from tests.ranks import make_world

WORLD = make_world(3, 4, 0, Path("/checkpoints"), generation=2, local_rank=1, local_world_size=2, node_rank=1, store_host="10.0.0.7")


def test_scripts_get_torchruns_variables() -> None:
    assert env.script_environment(WORLD, 29500) == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "1",
    }


def test_a_process_reads_back_the_place_it_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    assert env.position() == env.Position(rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    env.enter(WORLD, "eth0", Path("/data/rank1"))
    assert env.position() == env.Position(rank=3, world_size=4, local_rank=1, local_world_size=2, node_rank=1)
    assert environment["GLOO_SOCKET_IFNAME"] == "eth0"


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
