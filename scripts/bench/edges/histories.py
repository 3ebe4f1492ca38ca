"""A job of 600,000 steps with ten metrics: how long its curves and its audit of samples take, and what that holds up meanwhile.

Points and roll-ups are filled in bulk into a coordinator on SQLite. Each range of steps is asked for once, as by somebody who looks closer and
closer, so that no answer comes from memory. Beside the questions the coordinator is asked all the time whether it lives.

    python -m scripts.bench.edges.histories [--steps N] [--views N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import insert

from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import job_lifecycle
from paceline.cluster.states import JobState
from paceline.db.models.jobs import GenerationRow
from paceline.db.models.metrics import MetricNameRow, MetricRecordRow
from paceline.db.repositories import rollups
from paceline.db.session import open_databases
from paceline.monitoring.rollup import LEVELS
from scripts.bench.edges.control import spec
from scripts.bench.edges.heat_map import buckets
from scripts.bench.edges.load.coordinator import coordinator
from scripts.bench.figures import Figure, report, summarize

STEPS = 600_000
NAMES = ("loss", *(f"metric_{number}" for number in range(9)))
BATCH = 32
ROWS_AT_ONCE = 5_000
AUDITS = 3
USER = Actor(kind="user", id="bench", name="bench")


def record(job_id: str, step: int) -> dict[str, Any]:
    """The row of one step, as rank 0 of a trainer tells it."""
    values = {name: round(random.uniform(0.1, 2.0), 6) for name in NAMES}
    values |= {"first_sample": (step - 1) * BATCH, "samples": BATCH, "epoch_samples": 1_000_000, "step_seconds": 0.1}
    return {"job_id": job_id, "generation": 1, "rank": 0, "step": step, "time": 1.7e9 + step / 10, "values": json.dumps(values)}


async def fill(data: Path, steps: int) -> str:
    """Store an ended job with these points and their roll-ups; return its id. The databases are there and migrated."""
    control, metrics = open_databases(data, None)
    now = datetime.now(UTC)
    async with control.write() as session:
        job = await job_lifecycle.submit(session, spec(), USER, now)
        job.state, job.ended_at, job.generation, job.world_size = JobState.COMPLETED, now, 1, 1
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=1, started_at=now, store_token=""))
    async with metrics.write() as session:
        session.add_all(MetricNameRow(job_id=job.id, name=name) for name in NAMES)
        for first in range(1, steps + 1, ROWS_AT_ONCE):
            rows = [record(job.id, step) for step in range(first, min(steps + 1, first + ROWS_AT_ONCE))]
            await session.execute(insert(MetricRecordRow), rows)
        for name in NAMES:
            await rollups.merge(session, buckets(job.id, name, 0, steps, LEVELS))
        await rollups.move_marks(session, {rollups.EVERY_RANK: await rollups.newest_seq(session)})
    await control.close()
    await metrics.close()
    return job.id


async def timed(client: httpx.AsyncClient, path: str, params: Mapping[str, Any]) -> tuple[float, Any]:
    """Return (ms until the whole answer was there, the answer)."""
    began = time.monotonic()
    answer = await client.get(path, params=dict(params))
    took = (time.monotonic() - began) * 1000
    answer.raise_for_status()
    return took, answer.json()


async def curves(client: httpx.AsyncClient, job_id: str, steps: int, names: int, count: int) -> list[float]:
    """Return the ms of each of `count` ranges, from the whole job to a few hundred steps, of so many curves at once."""
    took = []
    for number in range(count):
        span = max(200, int(steps * 0.8**number))
        first = random.randrange(1, max(2, steps - span))
        asked = {"names": ",".join(NAMES[:names]), "first_step": first, "last_step": first + span, "buckets": 500}
        ms, found = await timed(client, f"/metrics/jobs/{job_id}", asked)
        if len(found["curves"]) != names:
            raise RuntimeError(f"{len(found['curves'])} curves of {names}")
        took.append(ms)
    return took


async def audits(client: httpx.AsyncClient, job_id: str, steps: int, first: int) -> list[float]:
    """Return the ms of each audit of all samples, of questions that differ, so that each is computed."""
    took = []
    for number in range(first, first + AUDITS):
        ms, found = await timed(client, f"/training/jobs/{job_id}/samples", {"step": number})
        if found["exactly_once"] is not True or found["steps"] != steps:
            raise RuntimeError(f"of {steps} steps the audit tells: {found['text']}")
        took.append(ms)
    return took


@contextlib.asynccontextmanager
async def asked_whether_it_lives(client: httpx.AsyncClient) -> AsyncIterator[list[float]]:
    """Collect the ms of each answer of /healthz while the block runs."""
    took = list[float]()

    async def ask() -> None:
        while True:
            took.append((await timed(client, "/healthz", {}))[0])
            await asyncio.sleep(0.02)

    asking = asyncio.create_task(ask())
    try:
        yield took
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


async def measure(steps: int, views: int) -> list[Figure]:
    made = list[str]()

    async def prepare(data: Path) -> None:
        made.append(await fill(data, steps))

    async with coordinator(0, prepare=prepare) as target, target.client() as client, httpx.AsyncClient(base_url=target.url) as probe:
        job_id = made[0]
        await audits(client, job_id, steps, first=1)  # starts the process that reads histories
        async with asked_whether_it_lives(probe) as beside_curves:
            one, ten = [await curves(client, job_id, steps, names, views) for names in (1, len(NAMES))]
        async with asked_whether_it_lives(probe) as beside_audits:
            audited = await audits(client, job_id, steps, first=100)
    size = f"{steps * len(NAMES):,} points, SQLite"
    return [
        summarize("curve_ms", "ms", one, f"one curve, {size}"),
        summarize("ten_curves_ms", "ms", ten, f"ten curves, {size}; goal 100"),
        summarize("healthz_beside_curves_ms", "ms", beside_curves, "the coordinator's other answers meanwhile"),
        summarize("samples_audit_ms", "ms", audited, f"all samples of {steps:,} steps; in a process of its own"),
        summarize("healthz_beside_audits_ms", "ms", beside_audits, "the coordinator's other answers meanwhile"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--views", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report(asyncio.run(measure(arguments.steps, arguments.views)), arguments.json)


if __name__ == "__main__":
    main()
