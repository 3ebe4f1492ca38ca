"""500 watchers of one job that tells ten records a second: how old a record is when it reaches them, and what it costs.

The job runs on one simulated node, whose agent uploads a record of ten values every tenth of a second. The watchers are in a process of
their own. A sample of the delay is one record at one watcher, from the upload to its arrival.

    python -m scripts.bench.edges.watchers [--watchers N] [--seconds S] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

import httpx
import msgspec

from paceline.cluster.protocol import UPLOAD_PATH
from paceline.monitoring.points import MetricRecord, RankBatch, Upload
from scripts.bench.edges.agents import CONNECT_SECONDS, SPEC, cpu_percents
from scripts.bench.edges.load.coordinator import Coordinator, coordinator
from scripts.bench.edges.load.fleet import Fleet, fleet
from scripts.bench.edges.load.watchers import Seen
from scripts.bench.figures import Figure, report, summarize

WATCHERS, SECONDS, FRAMES_PER_SECOND = 500, 20.0, 10
START_SECONDS, END_SECONDS = 60.0, 120.0
NAMES = ("loss", "learning_rate", *(f"metric_{n}" for n in range(8)))


async def running_job(client: httpx.AsyncClient, simulated: Fleet) -> str:
    await simulated.until(lambda told: told.connected > 0, "the agent is connected", CONNECT_SECONDS)
    job_id = str((await client.post("/training/jobs", json=SPEC)).raise_for_status().json()["id"])
    await simulated.until(lambda told: told.started > 0, "the job has started", START_SECONDS)
    return job_id


async def upload_records(target: Coordinator, job_id: str) -> None:
    """Upload one record every tenth of a second, until cancelled."""
    step, began = 0, time.monotonic()
    async with httpx.AsyncClient(base_url=target.url, headers={"Authorization": f"Bearer {target.credentials[0]}"}, timeout=30) as client:
        while True:
            step += 1
            record = MetricRecord(seq=step, step=step, time=time.time(), values={name: float(step) for name in NAMES})
            batch = RankBatch(job_id=job_id, generation=1, rank=0, metrics=[record])
            (await client.post(UPLOAD_PATH, content=msgspec.json.encode(Upload(batches=[batch])))).raise_for_status()
            await asyncio.sleep(max(0.0, began + step / FRAMES_PER_SECOND - time.monotonic()))


async def watch(target: Coordinator, job_id: str, watchers: int, seconds: float) -> tuple[Seen, list[float]]:
    """Run the watchers; return their results, and the coordinator's CPU in percent of one core, second by second."""
    command = [sys.executable, "-m", "scripts.bench.edges.load.watchers", target.url, target.key, job_id, str(watchers), str(seconds)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=1 << 28)
    assert process.stdout is not None
    uploading = asyncio.create_task(upload_records(target, job_id))
    try:
        assert await asyncio.wait_for(process.stdout.readline(), END_SECONDS) == b"ready\n", "the watchers did not connect"
        cpu = await cpu_percents(target, seconds - 1)
        seen = msgspec.json.decode(await asyncio.wait_for(process.stdout.readline(), END_SECONDS), type=Seen)
    finally:
        uploading.cancel()
        await asyncio.gather(uploading, return_exceptions=True)
        if process.returncode is None:
            process.terminate()
        await process.wait()
    return seen, cpu


async def measure(watchers: int, seconds: float, port: int | None) -> list[Figure]:
    async with coordinator(1, port=port) as target, fleet(target, lifetime=3600.0) as simulated, target.client() as client:
        job_id = await running_job(client, simulated)
        seen, cpu = await watch(target, job_id, watchers, seconds)
    delays = sorted(seen.delays_ms)
    p99 = delays[min(len(delays) - 1, int(0.99 * len(delays)))]
    what = f"{watchers} watchers, {FRAMES_PER_SECOND} records/s, load {os.getloadavg()[0]:.1f}; lost {seen.lost}, closed {seen.closed}"
    per_frame = 1e6 * sum(cpu) / 100 / len(cpu) * seconds / len(delays)
    rate = len(delays) / watchers / seconds
    return [
        summarize("watchers_p99_ms", "ms", [p99], f"goal 100; {what}"),
        summarize("watchers_delay_ms", "ms", delays, f"{rate:.1f} records/s reach each watcher"),
        summarize("watchers_us_per_frame", "us CPU", [per_frame], "of the coordinator, for each record at each watcher"),
        summarize("watchers_cpu_percent", "%", cpu, "goal 30, of one core"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watchers", type=int, default=WATCHERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--port", type=int, help="of the coordinator; default: a free one")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    report(asyncio.run(measure(arguments.watchers, arguments.seconds, arguments.port)), arguments.json)


if __name__ == "__main__":
    main()
