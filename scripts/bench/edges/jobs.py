"""Jobs of one slot a second, from their submission to their start on simulated agents, and what each costs the coordinator.

Sixteen clients submit as fast as they are answered; a job ends well after a second and makes room for the next.

    python -m scripts.bench.edges.jobs [--jobs N] [--agents N] [--databases NAME ...] [--postgres URL] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path

import httpx

from scripts.bench.edges.agents import CONNECT_SECONDS, SPEC
from scripts.bench.edges.load import databases
from scripts.bench.edges.load.coordinator import coordinator
from scripts.bench.edges.load.fleet import Fleet, fleet
from scripts.bench.figures import Figure, report, summarize

JOBS, AGENTS, CLIENTS = 3_000, 100, 16
WARM_UP_SECONDS, JOB_SECONDS = 2.0, 1.0


async def submit(client: httpx.AsyncClient, jobs: int) -> list[float]:
    """Submit the jobs; return how long each answer took, in ms."""
    numbers, took = iter(range(jobs)), list[float]()

    async def one_client() -> None:
        for number in numbers:
            began = time.monotonic()
            (await client.post("/training/jobs", json={**SPEC, "name": f"load-{number}"})).raise_for_status()
            took.append((time.monotonic() - began) * 1000)

    await asyncio.gather(*(one_client() for _ in range(CLIENTS)))
    return took


async def starts_per_second(simulated: Fleet, jobs: int, seconds: float) -> list[float]:
    """Second by second, until all have started."""
    rates, deadline = list[float](), time.monotonic() + seconds
    while simulated.told.started < jobs:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{simulated.told.started} of {jobs} jobs have started within {seconds:.0f} s")
        began, before = time.monotonic(), simulated.told.started
        await asyncio.sleep(1.0)
        rates.append((simulated.told.started - before) / (time.monotonic() - began))
    return rates


async def measure(database: str, database_url: str | None, jobs: int, agents: int, port: int | None) -> list[Figure]:
    async with coordinator(agents, database_url=database_url, port=port) as target, fleet(target, lifetime=JOB_SECONDS) as simulated:
        await simulated.until(lambda told: told.connected >= agents, f"{agents} agents are connected", CONNECT_SECONDS)
        await asyncio.sleep(WARM_UP_SECONDS)
        began, before = time.monotonic(), target.cpu_seconds()
        async with target.client() as client:
            submitting = asyncio.create_task(submit(client, jobs))
            rates = await starts_per_second(simulated, jobs, seconds=60 + jobs / 2)
            seconds, took = time.monotonic() - began, await submitting
        await simulated.until(lambda told: told.completed >= jobs, "all jobs have ended", 120.0)
        cpu = 1000 * (target.cpu_seconds() - before) / jobs
        what = f"{jobs} jobs on {agents} agents, load {os.getloadavg()[0]:.1f}"
    return [
        summarize(f"jobs_started_per_s_{database}", "1/s", [jobs / seconds], f"goal 100; {what}"),
        summarize(f"jobs_started_each_second_{database}", "1/s", rates, "of the same, second by second"),
        summarize(f"job_cpu_ms_{database}", "ms CPU", [cpu], "of the coordinator, for each job from its submission to its end"),
        summarize(f"job_submit_ms_{database}", "ms", took, f"with {CLIENTS} clients at once"),
    ]


async def run(arguments: argparse.Namespace) -> list[Figure]:
    found: list[Figure] = []
    for name in databases.chosen(arguments):
        async with databases.database_url(name, arguments.postgres) as url:
            found += await measure(name, url, arguments.jobs, arguments.agents, arguments.port)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--port", type=int, help="of the coordinator; default: a free one")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    databases.add_arguments(parser)
    arguments = parser.parse_args()
    report(asyncio.run(run(arguments)), arguments.json)


if __name__ == "__main__":
    main()
