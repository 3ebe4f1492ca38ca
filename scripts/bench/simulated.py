"""A coordinator with a simulated cluster of 64 nodes of 8 cards: how soon MOCK_DB is there, and what 512 busy slots cost at real speed.

mock_ready_s                  from `uvicorn` to 64 ready nodes and a dashboard that is served
simulated_cluster_cpu         the coordinator's CPU while jobs hold every slot, speedup 1
simulated_cluster_api_ms      its answers meanwhile: jobs, nodes, summary, one job and its curves
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from scripts.bench.edges.load.coordinator import Coordinator, coordinator, free_port
from scripts.bench.figures import Figure, run, summarize
from scripts.steps import ROOT

NODES, SLOTS = 64, 8
STARTS, READY_SECONDS, STOP_SECONDS = 3, 60.0, 20.0
WARM_UP_SECONDS, MEASURE_SECONDS = 15.0, 30.0
#: (name, nodes, plan): together they hold every slot. Steps of a 7B model take one to six seconds on so many cards.
JOBS = (
    ("replicas-of-shards", 32, {"strategy": "fsdp", "shard": 8}),
    ("tensor", 16, {"tensor": 8}),
    ("pipeline", 8, {"pipeline": 8}),
    ("shards", 8, {"strategy": "fsdp"}),
)


def measure() -> list[Figure]:
    ready = [mock_ready() for _ in range(STARTS)]
    cpu, answers = asyncio.run(busy_cluster())
    return [
        summarize("mock_ready_s", "s", ready, "goal: 5 s"),
        summarize("simulated_cluster_cpu", "%", cpu, f"of a core, {NODES} nodes of {SLOTS} cards at real speed; goal: under 40"),
        summarize("simulated_cluster_api_ms", "ms", answers, "goal: p95 under 50 ms"),
    ]


def mock_ready() -> float:
    """Seconds from the start of uvicorn with MOCK_DB until all nodes are ready and the dashboard answers."""
    port, began = free_port(), time.monotonic()
    command = [sys.executable, "-m", "uvicorn", "api.main:app", "--port", str(port), "--log-level", "warning", "--no-access-log"]
    environment = {**os.environ, "MOCK_DB": "true"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=READY_SECONDS) as client:
            while not _all_ready(client):
                if time.monotonic() - began > READY_SECONDS:
                    raise TimeoutError(f"{NODES} nodes were not ready within {READY_SECONDS:g} s")
                time.sleep(0.05)
            client.get("/cluster").raise_for_status()
        return time.monotonic() - began
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _all_ready(client: httpx.Client) -> bool:
    try:
        answer = client.get("/api/v1/metrics/cluster/summary")
    except httpx.TransportError:
        return False
    return answer.is_success and {"state": "ready", "count": NODES} in answer.json()["nodes"]


async def busy_cluster() -> tuple[list[float], list[float]]:
    """(CPU percent by second, milliseconds of each answer) while jobs hold every slot."""
    async with coordinator(0) as target, simulation(target), target.client() as client:
        ids = [(await submit(client, *job)) for job in JOBS]
        await _await_running(client, len(ids))
        await asyncio.sleep(WARM_UP_SECONDS)
        asking = asyncio.create_task(_ask(client, ids[0]))
        cpu = [await _percent(target) for _ in range(int(MEASURE_SECONDS))]
        return cpu, await asking


@asynccontextmanager
async def simulation(target: Coordinator, *options: str) -> AsyncIterator[None]:
    """Simulated nodes of the product's own module, joined to this coordinator."""
    async with target.client() as client:
        invited = [(await client.post("/cluster/nodes", json={})).raise_for_status().json()["token"] for _ in range(NODES)]
    tokens = {f"sim-{number:03d}": token for number, token in enumerate(invited, 1)}
    command = [sys.executable, "-m", "paceline.cluster.simulation.main", "--server", target.url, "--slots", str(SLOTS), *options]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None  # a pipe
    try:
        process.stdin.write(json.dumps(tokens).encode() + b"\n")
        yield
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), STOP_SECONDS)


async def submit(client: httpx.AsyncClient, name: str, nodes: int, plan: dict[str, Any]) -> str:
    """Submit a job of a 7B model; its id."""
    spec = {
        "name": name,
        "resources": {"nodes": nodes, "slots_per_node": SLOTS},
        "model": {"kind": "gpt", "layers": 32, "heads": 32, "dim": 4096, "context": 4096, "vocab_size": 50304},
        "data": {"kind": "stdlib_text"},
        "precision": "bf16",
        "parallelism": plan,
        "training": {"steps": 100_000, "global_batch_size": nodes * SLOTS * 4, "micro_batch_size": 1},
    }
    answer = await client.post("/training/jobs", json=spec)
    if answer.is_error:
        raise RuntimeError(f"{name} was refused: {answer.text}")
    return str(answer.json()["id"])


async def _await_running(client: httpx.AsyncClient, jobs: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while len((await client.get("/training/jobs", params={"status": "running"})).json()["items"]) < jobs:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{jobs} jobs did not run within {READY_SECONDS:g} s")
        await asyncio.sleep(0.2)


async def _percent(target: Coordinator) -> float:
    before, began = target.cpu_seconds(), time.monotonic()
    await asyncio.sleep(1.0)
    return 100 * (target.cpu_seconds() - before) / (time.monotonic() - began)


async def _ask(client: httpx.AsyncClient, job_id: str) -> list[float]:
    """Ask what a dashboard asks, four times a second; milliseconds of each answer."""
    paths = (
        "/training/jobs",
        "/cluster/nodes?limit=200",
        "/metrics/cluster/summary",
        f"/training/jobs/{job_id}",
        f"/metrics/jobs/{job_id}?names=loss",
    )
    taken, until, count = [], time.monotonic() + MEASURE_SECONDS, 0
    while time.monotonic() < until:
        began = time.monotonic()
        (await client.get(paths[count % len(paths)])).raise_for_status()
        taken.append(1000 * (time.monotonic() - began))
        count += 1
        await asyncio.sleep(0.25)
    return taken


if __name__ == "__main__":
    run(measure, __doc__)
