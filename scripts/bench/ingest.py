"""Metric points stored per second, over HTTP into a real coordinator process on SQLite.

A point is one value of one metric at one step. Two agents upload at once, as on a small cluster; each repetition is a fresh
coordinator with an empty database. Uploads are encoded beforehand: what is measured is the coordinator.

    python -m scripts.bench.ingest [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec

from paceline.cluster.protocol import UPLOAD_PATH
from paceline.cluster.states import JobState, NodeState, RankState
from paceline.credentials import NODE_PREFIX, hash_secret, new_secret
from paceline.db.migrate import upgrade_all
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.session import open_databases
from paceline.monitoring.points import MetricRecord, RankBatch, Upload
from paceline.training.spec.stored import StoredSpec
from scripts.bench.edges.load.coordinator import ready

AGENTS = 2
VALUES = 10
POINTS = 120_000
REPETITIONS = 5
START_SECONDS = 30.0
STOP_SECONDS = 20.0
NAMES = ("loss", "learning_rate", "gradient_norm", *(f"metric_{n}" for n in range(VALUES - 3)))
SPEC = {"name": "bench", "script": {"path": "bench.py"}, "resources": {"nodes": AGENTS}}
REFERENCE = "MLflow 3.17 over HTTP: 9.5 k in batches of 1,000, 155 one by one"


@dataclass(frozen=True)
class Coordinator:
    url: str
    job_id: str
    credentials: tuple[str, ...]  # one per agent, which holds the rank of the same number


async def seed(data: Path) -> tuple[str, tuple[str, ...]]:
    """A running job with one rank on each of AGENTS nodes."""
    control, metrics = open_databases(data, None)
    await upgrade_all(control, metrics)
    now = datetime.now(UTC)
    credentials = tuple(new_secret(NODE_PREFIX) for _ in range(AGENTS))
    async with control.write() as session:
        job = JobRow(
            name="bench", project="default", priority=50, state=JobState.RUNNING, spec=StoredSpec(SPEC), world_size=AGENTS, generation=1
        )
        job.created_by, job.created_at, job.queued_at, job.state_since = "bench", now, now, now
        session.add(job)
        await session.flush()
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=AGENTS, started_at=now, store_token=""))
        for rank, credential in enumerate(credentials):
            digest = hash_secret(credential)
            node = NodeRow(
                name=f"agent-{rank}", state=NodeState.READY, state_since=now, credential_hash=digest, joined_at=now, heartbeat_at=now
            )
            session.add(node)
            await session.flush()
            place = {"job_id": job.id, "generation": 1, "rank": rank, "node_id": node.id}
            session.add(RankRow(**place, slot=0, local_rank=0, node_rank=rank, state=RankState.RUNNING, updated_at=now))
    await control.close()
    await metrics.close()
    return job.id, credentials


@asynccontextmanager
async def coordinator() -> AsyncIterator[Coordinator]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        job_id, credentials = await seed(Path(folder))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        environment = {**os.environ, "PACELINE_DATA": folder, "DATABASE_URL": ""}
        command = [sys.executable, "-m", "uvicorn", "paceline.api.main:app", "--port", str(port), "--log-level", "warning"]
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        try:
            await ready(f"http://127.0.0.1:{port}")
            yield Coordinator(f"http://127.0.0.1:{port}", job_id, credentials)
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), STOP_SECONDS)


def uploads(job_id: str, rank: int, points: int, batch: int) -> list[bytes]:
    """Encoded uploads of `batch` points each, `points` in all."""
    per_upload, bodies = max(1, batch // VALUES), []
    names = NAMES[: min(VALUES, batch)]
    for first in range(1, max(2, points // len(names)), per_upload):
        records = [
            MetricRecord(seq=step, step=step, time=float(step), values={name: math.sin(step) for name in names})
            for step in range(first, first + per_upload)
        ]
        bodies.append(msgspec.json.encode(Upload(batches=[RankBatch(job_id=job_id, generation=1, rank=rank, metrics=records)])))
    return bodies


async def send(target: Coordinator, rank: int, bodies: Sequence[bytes]) -> None:
    headers = {"Authorization": f"Bearer {target.credentials[rank]}"}
    async with httpx.AsyncClient(base_url=target.url, headers=headers, timeout=60) as client:
        for body in bodies:
            (await client.post(UPLOAD_PATH, content=body)).raise_for_status()


async def measure(batch: int, points: int) -> float:
    """Points per second, from the first request to the last acknowledgement."""
    async with coordinator() as target:
        bodies = [uploads(target.job_id, rank, points // AGENTS, batch) for rank in range(AGENTS)]
        sent = sum(len(of_agent) for of_agent in bodies) * batch
        began = time.perf_counter()
        await asyncio.gather(*(send(target, rank, of_agent) for rank, of_agent in enumerate(bodies)))
        return sent / (time.perf_counter() - began)


def figure(name: str, batch: int, rates: Sequence[float]) -> dict[str, object]:
    slowest_in_twenty = sorted(rates)[max(0, math.ceil(len(rates) * 0.05) - 1)]
    reference = f"batches of {batch:,} points; {REFERENCE}"
    return {
        "figure": name,
        "unit": "1/s",
        "median": statistics.median(rates),
        "p95": slowest_in_twenty,
        "n": len(rates),
        "reference": reference,
    }


async def run(repetitions: int) -> list[dict[str, object]]:
    """The headline is batches of 1,000 points; the others show what batching is worth."""
    sizes = (
        ("ingest_points_per_s", 1_000, POINTS),
        ("ingest_points_per_s_batch_10", 10, POINTS // 20),
        ("ingest_points_per_s_batch_10000", 10_000, POINTS),
    )
    return [figure(name, batch, [await measure(batch, points) for _ in range(repetitions)]) for name, batch, points in sizes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    arguments = parser.parse_args()
    figures = asyncio.run(run(arguments.repetitions))
    print(f"{'figure':<34} {'median':>10} {'p95':>10}  unit  reference")
    for row in figures:
        print(f"{row['figure']:<34} {row['median']:>10,.0f} {row['p95']:>10,.0f}  {row['unit']:<4}  {row['reference']}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
