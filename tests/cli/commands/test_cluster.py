"""The cluster in numbers, and its GPUs."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.commands.test_nodes import listed, node
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator

WIDTH = 80
SUMMARY = {
    "nodes": [{"state": "ready", "count": 3}, {"state": "lost", "count": 0}],
    "jobs": [{"state": "running", "count": 2}, {"state": "completed", "count": 11}],
    "slots_total": 8,
    "slots_used": 6,
    "slots_free": 2,
    "gpus": 8,
    "cpu_percent": None,
    "memory_used_bytes": 12_000_000_000,
    "memory_total_bytes": 64_000_000_000,
    "tokens_per_second": 12345.0,
    "samples_per_second": 96.0,
    "gpu_percent": 88.2,
    "gpu_memory_used_bytes": 320 << 30,
    "gpu_memory_total_bytes": 640 << 30,
    "gpu_power_watts": 4200.0,
    "updated_at": "2026-11-20T12:00:00Z",
}


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    reading = {"utilization_percent": 97.0, "memory_used_bytes": 61_200_000_000, "memory_total_bytes": 80_000_000_000, "power_watts": 640.4}
    return {
        "node_id": "N1",
        "node_name": "a-node-with-a-long-name",
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "age_seconds": 1.2,
        "temperature_celsius": 63.0,
        **reading,
        **changes,
    }


def test_the_cluster_is_told_in_numbers(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/metrics/cluster/summary", Answer(200, SUMMARY))
    done = paceline("cluster")
    assert done.returncode == 0, done.stderr
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert told["nodes"] == "3 ready"
    assert told["jobs"] == "2 running, 11 completed"
    assert told["slots"] == "6 of 8 used, 2 free"
    assert told["cpu"] == "-"
    assert told["throughput"] == "12.3 k tokens/s, 96 samples/s"
    assert "gpu use     88%" in done.stdout
    assert "gpu memory  320.0 GiB of 640.0 GiB" in done.stdout
    assert "gpu power   4.2 kW" in done.stdout
    assert json.loads(paceline("cluster", "--json").stdout) == SUMMARY


def test_a_cluster_without_gpus_that_trains_no_text_shows_samples_and_no_cards(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """It said "0 tokens/s"."""
    coordinator.on("GET", "/metrics/cluster/summary", Answer(200, SUMMARY | {"gpus": 0, "tokens_per_second": 0.0}))
    said = paceline("cluster").stdout
    assert "throughput  96 samples/s" in said
    assert "gpu use" not in said


def test_gpus_are_listed_with_the_job_and_rank_on_each_card(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    status = {"gpus": [gpu(0), gpu(1, utilization_percent=None, error="Unknown Error")], "nodes_without_gpu": []}
    coordinator.on("GET", "/cluster/gpu-status", Answer(200, status))
    slots = [{"index": 0, "job_id": "J", "job_name": "gpt", "rank": 3}, {"index": 1, "job_id": None}]
    listed(coordinator, node(device="cuda", slots=slots, gpus=status["gpus"]))
    done = paceline("gpus")
    assert done.returncode == 0, done.stderr
    _, held, idle = done.stdout.splitlines()
    assert held.split()[:13] == ["a-node-with-a-long-name", "0", "97%", "57.0/75", "GiB", "63", "C", "640", "W", "1.2", "s", "gpt", "3"]
    assert idle.split()[2] == "-"
    assert all(len(line) <= WIDTH for line in done.stdout.splitlines())
    assert json.loads(paceline("gpus", "--json").stdout) == status


def test_the_holder_of_a_slot_is_on_the_card_that_the_node_offers_for_it(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    offered = [gpu(2), gpu(0)]  # worker --gpus 2,0
    coordinator.on("GET", "/cluster/gpu-status", Answer(200, {"gpus": offered, "nodes_without_gpu": []}))
    slots = [{"index": 0, "job_id": "J", "job_name": "gpt", "rank": 3}, {"index": 1, "job_id": "K", "job_name": "vit", "rank": 0}]
    listed(coordinator, node(device="cuda", slots=slots, gpus=offered))
    first, second = (line.split() for line in paceline("gpus").stdout.splitlines()[1:])
    assert (first[1], first[11:13]) == ("2", ["gpt", "3"])
    assert (second[1], second[11:13]) == ("0", ["vit", "0"])


def test_a_narrow_terminal_goes_without_readings_before_it_cuts_the_rank(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/cluster/gpu-status", Answer(200, {"gpus": [gpu(0)], "nodes_without_gpu": []}))
    listed(coordinator, node(device="cuda", slots=[{"index": 0, "job_id": "J", "job_name": "gpt-large", "rank": 3}], gpus=[gpu(0)]))
    header, held = paceline("gpus", COLUMNS="60").stdout.splitlines()
    assert header.split() == ["NODE", "GPU", "USE", "JOB", "RANK", "CARD"]
    assert " 3 " in held[header.index("RANK") - 1 :]
    assert len(held) <= 60


def test_slots_of_a_node_that_offers_its_processors_are_no_cards(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/cluster/gpu-status", Answer(200, {"gpus": [gpu(0)], "nodes_without_gpu": []}))
    listed(coordinator, node(device="cpu"))
    assert "gpt" not in paceline("gpus").stdout


def test_a_cluster_without_gpus_says_where_there_is_none(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/cluster/gpu-status", Answer(200, {"gpus": [], "nodes_without_gpu": ["a", "b"]}))
    listed(coordinator)
    assert paceline("gpus").stdout.strip() == "no GPU on a, b"
