"""What a month of a busy job takes, and what retention makes of it: 64 ranks x 10 steps a second, for 30 days.

The month is scaled down, not waited for: six hours of it are a block of rows that is stored as the writer stores them, and the storage
loop runs over them with a `now` that moves on. The limit of size is scaled by the same factor; ages are the defaults. Printed beside the plan: bytes
of a point x points kept.

    python -m scripts.bench.edges.retention [--scale N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import func, select

from paceline.api.core.context import Services, utc_now
from paceline.api.loops.storage import StorageKeeper
from paceline.api.main import create_app
from paceline.api.services.storage import rollups
from paceline.api.services.storage.keeping import DeletionPace
from paceline.api.settings import Settings
from paceline.cluster.history.storage import BUCKET_BYTES, POINT_BYTES, StorageKind
from paceline.cluster.states import JobState
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.models.metrics import MetricRecordRow
from paceline.db.repositories import storage
from paceline.monitoring.points import MetricRecord, RankBatch
from paceline.monitoring.rollup import LEVELS
from paceline.training.spec.stored import StoredSpec

RANKS, STEPS_PER_SECOND, DAYS = 64, 10, 30
NAMES = ("loss", "gradient_norm", "learning_rate", "step_seconds", "tokens_per_second")
SPEC = {"name": "month", "script": {"path": "train.py"}, "checkpoint": {}}
DEFAULT_LIMIT = 20 << 30
BLOCK_HOURS = 6
REFRESH_SECONDS = 600.0
BATCH = 1_000


@dataclass
class Month:
    """The job, shrunk: `scale` stands for how much less of everything there is."""

    services: Services
    writer: Any
    job_id: str
    steps_per_block: int
    ranks: int
    step: int = 0

    async def block(self, now: Any) -> None:
        self.writer.now = lambda: now
        first, self.step = self.step + 1, self.step + self.steps_per_block
        for start in range(first, self.step + 1, BATCH):
            steps = range(start, min(start + BATCH, self.step + 1))
            await self.writer.store([self._batch(rank, steps, now.timestamp()) for rank in range(self.ranks)])
        await rollups.refresh(self.services, DeletionPace.of(REFRESH_SECONDS), now)

    def _batch(self, rank: int, steps: range, at: float) -> RankBatch:
        values: dict[str, float | Literal["NaN", "Infinity", "-Infinity"]] = {
            name: 1.0 / (1 + rank + number) for number, name in enumerate(NAMES)
        }
        records = [MetricRecord(seq=step, step=step, time=at, values=values) for step in steps]
        return RankBatch(job_id=self.job_id, generation=1, rank=rank, metrics=records)


async def seed(services: Services, ranks: int) -> str:
    now = utc_now()
    job = JobRow(
        name="month", project="default", priority=50, state=JobState.RUNNING, spec=StoredSpec(SPEC), world_size=ranks, generation=1
    )
    job.created_by, job.created_at, job.queued_at, job.state_since = "bench", now, now, now
    async with services.write() as session:
        session.add(job)
        await session.flush()
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=ranks, started_at=now, store_token="t"))
    return job.id


async def simulate(scale: int, days: int, limit: int) -> dict[str, Any]:
    """The sizes at the end of each day, and what the loop took."""
    steps_per_block = STEPS_PER_SECOND * 3600 * BLOCK_HOURS // scale
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(data=Path(folder), database_url=os.environ.get("DATABASE_URL"), redis_url=None), with_loops=False)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app.router.lifespan_context(app))
            services: Services = app.state.services
            settings = services.settings.model_copy(update={"keep_size": limit})
            month = Month(services, app.state.writer, await seed(services, RANKS), steps_per_block, RANKS)
            keeper = StorageKeeper(replace(services, settings=settings))
            return await _run(month, keeper, days)


async def _run(month: Month, keeper: StorageKeeper, days: int) -> dict[str, Any]:
    now, began, loop_seconds, history = utc_now(), time.monotonic(), 0.0, []
    for hours in range(BLOCK_HOURS, days * 24 + 1, BLOCK_HOURS):
        now += timedelta(hours=BLOCK_HOURS)
        await month.block(now)
        passes = time.monotonic()
        await keeper.step_once(now)
        loop_seconds += time.monotonic() - passes
        if hours % 24 == 0:
            history.append(await _sizes(month.services))
    return {"history": history, "loop_seconds": loop_seconds, "seconds": time.monotonic() - began}


async def _sizes(services: Services) -> dict[str, int]:
    async with services.metrics.read() as session:
        kinds = await storage.by_kind(session)
        file, free = await storage.file_bytes(session)
        points = int(await session.scalar(select(func.count()).select_from(MetricRecordRow)) or 0)
    return {
        "counted": sum(size for _, size in kinds.values()),
        "raw": kinds[StorageKind.POINTS][1],
        "points": points,
        "file": file,
        "free": free,
    }


def plan() -> list[tuple[str, float]]:
    """The month as it would be without an end, and with the defaults: bytes."""
    records = RANKS * STEPS_PER_SECOND * 86_400 * DAYS
    text = len(json.dumps(dict.fromkeys(NAMES, 0.015625), separators=(",", ":")))
    raw = records * (POINT_BYTES + text)
    curves = sum(records * len(NAMES) / level for level in LEVELS) * BUCKET_BYTES
    return [
        ("raw points, kept for 30 days", raw),
        ("curves", curves),
        ("both, without an end", raw + curves),
        ("both, by default", float(DEFAULT_LIMIT)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=3_600, help="how many times fewer steps (default: %(default)s: ten an hour)")
    parser.add_argument("--days", type=int, default=DAYS, help="of the month (default: %(default)s)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"The plan of {DAYS} days, {RANKS} ranks x {STEPS_PER_SECOND} steps/s x {len(NAMES)} values:")
    for name, size in plan():
        print(f"  {name:<34} {size / (1 << 30):10.1f} GiB")
    limit = DEFAULT_LIMIT // options.scale
    found = asyncio.run(simulate(options.scale, options.days, limit))
    print(f"Simulated: {options.days} days at 1/{options.scale} of the steps, the default policy with a limit of {limit / 1e6:.2f} MB:")
    print(f"  {'day':>4} {'points kept':>12} {'raw MB':>8} {'counted MB':>11} {'file MB':>8} {'file/counted':>13}")
    for day, each in enumerate(found["history"], 1):
        used = each["file"] - each["free"]
        sizes = f"{each['raw'] / 1e6:8.2f} {each['counted'] / 1e6:11.2f} {each['file'] / 1e6:8.2f} {used / max(1, each['counted']):13.2f}"
        print(f"  {day:>4} {each['points']:>12,} {sizes}")
    share = found["loop_seconds"] / found["seconds"]
    print(f"  the loop took {found['loop_seconds']:.1f} s of {found['seconds']:.1f} s")
    if options.json:
        options.json.write_text(json.dumps(figures(found, share), indent=2) + "\n")


def figures(found: dict[str, Any], share: float) -> list[dict[str, Any]]:
    last = found["history"][-1]
    rows = (
        ("retention_counted_bytes", "B", last["counted"]),
        ("retention_file_bytes", "B", last["file"]),
        ("retention_loop_share", "share", share),
    )
    return [{"figure": name, "unit": unit, "median": value, "p95": value, "n": 1, "reference": ""} for name, unit, value in rows]


if __name__ == "__main__":
    main()
