"""A cluster without machines, as a developer has it: MOCK_DB by uvicorn, and `paceline simulate` for any coordinator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port

SECONDS = 60.0
SPEC = {
    "name": "visitor",
    "resources": {"nodes": 2, "slots_per_node": 8},
    "model": {"kind": "gpt"},
    "data": {"kind": "stdlib_text"},
    "training": {"steps": 5_000, "global_batch_size": 64, "micro_batch_size": 2},
    "checkpoint": {"every_steps": 20},
}


@pytest.fixture
def mock() -> Iterator[tuple[psutil.Process, httpx.Client]]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "api.main:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "MOCK_DB": "true"})
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as client:
        yield psutil.Process(process.pid), client
    process.kill()
    process.wait(SECONDS)


def answer(client: httpx.Client, path: str) -> Any:
    try:
        found = client.get(f"/api/v1{path}")
    except httpx.TransportError:
        return None
    return found.json() if found.is_success else None


def jobs(client: httpx.Client) -> dict[str, dict[str, Any]]:
    return {job["name"]: job for job in answer(client, "/training/jobs?limit=100")["items"]}


def drain_a_node_of_the_visitors_job(client: httpx.Client, job_id: str) -> None:
    """Its ranks move to other nodes, and it trains on."""

    def nodes() -> set[str]:
        return {rank["node_id"] for rank in answer(client, f"/training/jobs/{job_id}")["ranks"] if rank["state"] == "running"}

    before = nodes()
    left = min(before)
    assert client.delete(f"/api/v1/cluster/nodes/{left}").is_success
    wait_until("its ranks to be on other nodes", lambda: len(nodes()) == len(before) and left not in nodes(), SECONDS)
    step = jobs(client)["visitor"]["progress"]["step"]
    wait_until("it to train on", lambda: jobs(client)["visitor"]["progress"]["step"] > step, SECONDS)


def restore_the_visitors_job(client: httpx.Client, job_id: str) -> None:
    """A new job goes on behind the step of a checkpoint."""
    path = f"/checkpoints/jobs/{job_id}"
    saved = wait_until("a checkpoint", lambda: [each for each in answer(client, path)["items"] if each["state"] == "committed"], SECONDS)[0]
    made = client.post(f"/api/v1/checkpoints/{saved['id']}/restore", json={"name": "restored"})
    assert made.is_success, made.text
    wait_until("the restored job to train", lambda: (jobs(client)["restored"]["progress"] or {}).get("step", 0) > saved["step"], SECONDS)
    first = answer(client, f"/metrics/jobs/{made.json()['id']}?names=loss")["curves"][0]["steps"][0]
    assert first == saved["step"] + 1


def test_mock_db_is_a_cluster_to_use_without_signing_in_and_is_gone_afterwards(mock: tuple[psutil.Process, httpx.Client]) -> None:
    process, client = mock
    full = {"state": "ready", "count": 64}
    wait_until("64 ready nodes", lambda: full in (answer(client, "/metrics/cluster/summary") or {"nodes": []})["nodes"], SECONDS)
    made = client.post("/api/v1/training/jobs", json=SPEC)
    assert made.status_code == 201, made.text
    wait_until("the visitor's job to train", lambda: (jobs(client)["visitor"]["progress"] or {}).get("step", 0) > 3, SECONDS)
    wait_until(
        "the demo's jobs to fail and to run",
        lambda: {"failed", "running", "queued"} <= {j["state"] for j in jobs(client).values()},
        SECONDS,
    )
    assert jobs(client)["visitor"]["created_by"] == "guest"
    drain_a_node_of_the_visitors_job(client, made.json()["id"])
    restore_the_visitors_job(client, made.json()["id"])
    folder = Path(next(file.path for file in process.open_files() if file.path.endswith("paceline.db"))).parent
    children = process.children(recursive=True)
    process.send_signal(signal.SIGTERM)
    gone, alive = psutil.wait_procs([process, *children], timeout=SECONDS)
    assert not alive, alive
    assert gone
    assert not folder.exists()


def test_simulated_nodes_join_any_coordinator_and_leave_with_their_command(empty_stack: Stack) -> None:
    empty_stack.up(free_port(), agents=0)
    command = [sys.executable, "-m", "paceline.cli.main", "simulate", "--nodes", "3", "--slots", "8", "--speedup", "60"]
    environment = {**os.environ, "PACELINE_API_KEY": empty_stack.api_key}
    simulation = subprocess.Popen([*command, "--server", empty_stack.server], env=environment, stderr=subprocess.PIPE, text=True)
    wait_until("three ready nodes", lambda: [n["state"] for n in empty_stack.get("/cluster/nodes")["items"]] == ["ready"] * 3, SECONDS)
    simulation.send_signal(signal.SIGINT)
    _, said = simulation.communicate(timeout=SECONDS)
    assert simulation.returncode == 130, said
    assert empty_stack.get("/cluster/nodes")["items"] == []


ASKING = {"resources": {"nodes": 2, "slots_per_node": 8, "labels": {"simulated": "true"}, "tolerations": ["simulated"]}}


def test_beside_real_nodes_simulated_ones_take_only_the_jobs_that_ask_for_them(empty_stack: Stack) -> None:
    """It was refused after a plain `paceline up`."""
    empty_stack.up(free_port(), agents=1)
    command = [sys.executable, "-m", "paceline.cli.main", "simulate", "--nodes", "2", "--slots", "8", "--server", empty_stack.server]
    environment = {**os.environ, "PACELINE_API_KEY": empty_stack.api_key}
    simulation = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_until("three ready nodes", lambda: [n["state"] for n in empty_stack.get("/cluster/nodes")["items"]] == ["ready"] * 3, SECONDS)
        asking, other = empty_stack.submit(SPEC | ASKING), empty_stack.submit(SPEC | {"name": "other"})
        running = empty_stack.wait_for_state(asking, "running", "failed", timeout=SECONDS)
        assert running["state"] == "running", running["failure"]
        assert {rank["node_name"][:3] for rank in running["ranks"]} == {"sim"}
        waiting = wait_until("its reason", lambda: job if (job := empty_stack.job(other))["pending"] else None, SECONDS)
        assert "taint simulated" in waiting["pending"]["text"]
    finally:
        simulation.send_signal(signal.SIGINT)
        _, said = simulation.communicate(timeout=SECONDS)
    assert "jobs that are to run on the simulated ones say so" in said
