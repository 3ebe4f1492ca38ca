"""Heat maps of 1,024 ranks x 100,000 steps from a coordinator on SQLite: how long a view takes, and what it holds up meanwhile.

The roll-ups of two metrics are filled in bulk, from buckets of 100 steps up. Views are those of a reader: the whole run, then ever smaller
ranges of it, each asked for once, so that none is answered from memory. Beside them the job itself is asked for all the time.

    python -m scripts.bench.edges.heat_map [--ranks N] [--steps N] [--views N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import job_lifecycle
from paceline.cluster.history.storage import StorageKind, curve_kind
from paceline.cluster.states import JobState
from paceline.db.models.jobs import GenerationRow
from paceline.db.models.metrics import MetricNameRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories import rollups
from paceline.db.session import open_databases
from paceline.monitoring.rollup import LEVELS
from scripts.bench.edges.control import spec
from scripts.bench.edges.load.coordinator import coordinator
from scripts.bench.figures import Figure, report, summarize

NAMES = ("step_seconds", "communication_seconds")
#: What the goal is for.
RANKS, STEPS = 1_024, 100_000
SLOW_RANK = 77
USER = Actor(kind="user", id="bench", name="bench")


def buckets(job_id: str, name: str, rank: int, steps: int, levels: Sequence[int] = LEVELS[1:]) -> list[tuple[Any, ...]]:
    """The roll-ups of one rank, with values that differ and one rank that is slow."""
    rows: list[tuple[Any, ...]] = []
    for level in levels:
        for number in range(max(1, steps // level)):
            mean = random.uniform(0.09, 0.11) * (1.5 if rank == SLOW_RANK and name == "step_seconds" else 1.0)
            last = min(steps, (number + 1) * level) - 1
            rows.append((job_id, name, rank, level, number, 1, level, 0, mean * 0.9, mean * 1.1, mean * level, mean, last, 1.7e9 + last))
    return rows


async def fill(data: Path, ranks: int, steps: int) -> str:
    """Store a job with these roll-ups; return its id. The databases are there and migrated."""
    control, metrics = open_databases(data, None)
    now = datetime.now(UTC)
    async with control.write() as session:
        job = await job_lifecycle.submit(session, spec(), USER, now)
        job.state, job.ended_at, job.generation, job.world_size = JobState.COMPLETED, now, 1, ranks
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=ranks, started_at=now, store_token=""))
    async with metrics.write() as session:
        session.add_all(MetricNameRow(job_id=job.id, name=name) for name in NAMES)
        # As if the points had been deleted since: views are made from roll-ups alone.
        session.add(StoredDataRow(job_id=job.id, kind=StorageKind.POINTS, changed_at=now, gone_to_step=steps))
        session.add(StoredDataRow(job_id=job.id, kind=curve_kind(LEVELS[0]), changed_at=now, gone_to_step=steps))
        for rank in range(ranks):
            for name in NAMES:
                await rollups.merge(session, buckets(job.id, name, rank, steps))
    await control.close()
    await metrics.close()
    return job.id


async def views(client: httpx.AsyncClient, job_id: str, ranks: int, steps: int, count: int) -> tuple[list[float], list[float], int]:
    """Return (ms of each view, ms of each question for the job meanwhile, bytes of the largest view)."""
    took, beside, largest = list[float](), list[float](), 0

    async def one_view(params: dict[str, Any]) -> None:
        nonlocal largest
        began = time.monotonic()
        answer = await client.get(f"/metrics/jobs/{job_id}/heatmap", params=params)
        took.append((time.monotonic() - began) * 1000)
        answer.raise_for_status()
        found = answer.json()
        if found["rows"] != ranks:
            raise RuntimeError(f"a map of {found['rows']} rows for {ranks} ranks")
        if len(base64.b64decode(found["cells"])) != found["rows"] * found["columns"] * 4:
            raise RuntimeError(f"a map of {found['rows']} x {found['columns']} has {len(found['cells'])} characters of cells")
        largest = max(largest, len(answer.content))

    async def ask_for_the_job() -> None:
        while True:
            began = time.monotonic()
            (await client.get(f"/training/jobs/{job_id}")).raise_for_status()
            beside.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(0.05)

    await one_view({})  # starts the process that reads histories
    took.clear()
    asking = asyncio.create_task(ask_for_the_job())
    for number in range(count):
        span = max(100, int(steps * 0.9**number))
        first = random.randrange(max(1, steps - span))
        name, statistic = random.choice([(NAMES[0], "mean"), (NAMES[0], "maximum"), ("busy_seconds", "mean")])
        await one_view({"name": name, "statistic": statistic, "first_step": first, "last_step": first + span})
    asking.cancel()
    return took, beside, largest


async def measure(ranks: int, steps: int, count: int) -> list[Figure]:
    made = list[str]()

    async def prepare(data: Path) -> None:
        made.append(await fill(data, ranks, steps))

    async with coordinator(0, prepare=prepare) as target, target.client() as client:
        took, beside, largest = await views(client, made[0], ranks, steps, count)
    size = f"{ranks:,} ranks x {steps:,} steps, SQLite, up to {largest / 1000:.0f} kB"
    return [
        summarize(figure_name(ranks, steps), "ms", took, f"{size}; goal 150" if (ranks, steps) == (RANKS, STEPS) else size),
        summarize("job_beside_heat_maps_ms", "ms", beside, "the job's own page meanwhile"),
    ]


def figure_name(ranks: int, steps: int) -> str:
    """Name the figure; the one that has a goal is that of RANKS x STEPS alone."""
    return "heat_map_p95_ms" if (ranks, steps) == (RANKS, STEPS) else f"heat_map_{ranks}x{steps}_p95_ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--views", type=int, default=60)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report(asyncio.run(measure(arguments.ranks, arguments.steps, arguments.views)), arguments.json)


if __name__ == "__main__":
    main()
