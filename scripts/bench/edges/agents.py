"""What idle agents cost the coordinator: CPU, how old heartbeats get, how long a submission takes beside them.

Simulated agents of 8 GPUs each, in a process of their own, so that the coordinator's CPU is its own. First nothing but heartbeats and
observations for `--seconds`; then one small job is submitted every half second or so, and runs for a second.

    python -m scripts.bench.edges.agents [--agents N] [--seconds S] [--database URL] [--json FILE]

`--database`: an empty PostgreSQL database instead of SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from pathlib import Path

import httpx

from scripts.bench.edges.load.coordinator import Coordinator, coordinator
from scripts.bench.edges.load.fleet import Fleet, fleet
from scripts.bench.figures import Figure, report, summarize

AGENTS, SECONDS = 1_000, 30.0
CONNECT_SECONDS, WARM_UP_SECONDS = 180.0, 5.0
SUBMISSIONS, SECONDS_BETWEEN = 20, 0.5
SPEC = {
    "name": "load",
    "resources": {"nodes": 1},
    "model": {"kind": "mlp", "hidden": [16]},
    "data": {"kind": "digits"},
    "parallelism": {"strategy": "single"},
    "training": {"steps": 100, "global_batch_size": 8},
}


async def cpu_percents(target: Coordinator, seconds: float) -> list[float]:
    """Return the coordinator's CPU use, in percent of one core, one value a second."""
    found: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began, before = time.monotonic(), target.cpu_seconds()
        await asyncio.sleep(1.0)
        found.append(100 * (target.cpu_seconds() - before) / (time.monotonic() - began))
    return found


async def heartbeat_ages(client: httpx.AsyncClient) -> list[float]:
    ages: list[float] = []
    cursor = None
    while True:
        page = (await client.get("/cluster/nodes", params={"limit": 200, **({"cursor": cursor} if cursor else {})})).json()
        ages += [node["heartbeat_age_seconds"] for node in page["items"] if node["state"] == "ready"]
        cursor = page.get("next_cursor")
        if cursor is None:
            return ages


async def submissions_ms(client: httpx.AsyncClient) -> list[float]:
    found: list[float] = []
    for _ in range(SUBMISSIONS):
        began = time.monotonic()
        (await client.post("/training/jobs", json=SPEC)).raise_for_status()
        found.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(SECONDS_BETWEEN * random.uniform(0.5, 1.5))  # at no rhythm that the coordinator's own work has too
    return found


async def measure(agents: int, seconds: float, database_url: str | None, port: int | None) -> list[Figure]:
    async with coordinator(agents, database_url=database_url, port=port) as target, fleet(target) as simulated, target.client() as client:
        began, before = time.monotonic(), target.cpu_seconds()
        await simulated.until(lambda told: told.connected >= agents, f"{agents} agents are connected", CONNECT_SECONDS)
        connecting, its_cpu = time.monotonic() - began, target.cpu_seconds() - before
        await asyncio.sleep(WARM_UP_SECONDS)
        beats, spent = simulated.told.heartbeats, target.cpu_seconds()
        cpu = await cpu_percents(target, seconds)
        beats, spent = simulated.told.heartbeats - beats, target.cpu_seconds() - spent
        ages = [age for _ in range(3) for age in await heartbeat_ages(client)]
        submitted = await submissions_ms(client)
        what = f"{agents} agents, {'PostgreSQL' if database_url else 'SQLite'}, load {os.getloadavg()[0]:.1f}; {_troubles(simulated)}"
        print(f"{agents} agents connected in {connecting:.0f} s with {1000 * its_cpu / agents:.1f} ms of CPU each; {what}")
        memory = target.process.memory_info().rss / 2**20
    return [
        summarize("idle_agents_cpu_percent", "%", cpu, f"goal 30 with 1,000; {what}"),
        summarize("idle_agents_us_per_heartbeat", "us CPU", [1e6 * spent / beats], f"{beats / seconds:.0f} a second came; with all else"),
        summarize("idle_agents_heartbeat_age_s", "s", ages, f"goal: none over 3; oldest {max(ages):.1f}"),
        summarize("idle_agents_submit_ms", "ms", submitted, "goal p95 200"),
        summarize("idle_agents_rss_mib", "MiB", [memory], "of the coordinator"),
    ]


def _troubles(simulated: Fleet) -> str:
    told = simulated.told
    return f"{told.connected} connected, {told.reconnects} reconnects, closed {told.closed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--database", help="URL of an empty PostgreSQL database")
    parser.add_argument("--port", type=int, help="of the coordinator; default: a free one")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    report(asyncio.run(measure(arguments.agents, arguments.seconds, arguments.database, arguments.port)), arguments.json)


if __name__ == "__main__":
    main()
