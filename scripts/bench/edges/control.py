"""What the coordinator's control loop and its job list cost on a long history, on SQLite.

Databases are filled in bulk: a job that runs on two nodes, with 1 or 200,000 ranks of it and of others that have ended; a list of 50,000
ended jobs; a queue of 5,000 jobs that do not fit. Measured are one step of the scheduler and one observation of an agent (`control_pass_ms`),
the job list over HTTP as the dashboard asks for it (`list_jobs_p95_ms`) with the coordinator's memory (`list_jobs_rss_mib`), and a step over
the queue while nothing changes (`idle_queue_pass_ms`). Passes are measured in processor time, of all threads, which a busy machine does not
blur; the list in seconds.

    python -m scripts.bench.edges.control [--json FILE]
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
from sqlalchemy import text

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.core.last_uses import LastUses
from paceline.api.loops.scheduler import Scheduler
from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.scheduling import observations
from paceline.api.services.scheduling.assignments import desired_of
from paceline.api.services.scheduling.observations import NodeReport
from paceline.api.settings import Settings
from paceline.cluster.protocol import Observed, ObservedAssignment, ObservedRank
from paceline.cluster.states import JobState, NodeState, RankState
from paceline.db.migrate import upgrade_all
from paceline.db.models.identity import UserRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.session import open_databases
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec
from scripts.bench.edges.load.coordinator import ready
from scripts.bench.figures import Figure, run, summarize
from scripts.bench.ingest import STOP_SECONDS

ENDED_RANKS = (1, 200_000)
RANKS_PER_JOB = 2_000
JOBS_IN_HISTORY = 50_000
QUEUE = 5_000
PASSES, REQUESTS = 60, 100
#: As the dashboard's first page, its next page, and its filters.
LISTS: tuple[dict[str, Any], ...] = (
    {"limit": 50},
    {"limit": 50, "sort": "name"},
    {"limit": 50, "status": "running,queued"},
    {"limit": 50, "q": "digits-49"},
    {"limit": 50, "project": "vision"},
)
USER = Actor(kind="user", id="bench", name="bench")
Seconds = list[float]


def spec(**changes: Any) -> JobSpec:
    document: dict[str, Any] = {
        "name": "digits",
        "model": {"kind": "mlp", "hidden": [16]},
        "data": {"kind": "digits"},
        "parallelism": {"strategy": "ddp"},
        "resources": {"nodes": 2},
        "training": {"steps": 100, "global_batch_size": 8},
    }
    return JobSpec.model_validate(document | changes)


@asynccontextmanager
async def services(folder: Path) -> AsyncIterator[Services]:
    """Yield the services of a coordinator with an empty database, two nodes, and a key's owner among its users."""
    control, metrics = open_databases(folder, None)
    await upgrade_all(control, metrics)
    made = Services(Settings(data=folder, database_url=None, redis_url=None), control, metrics, LastUses(control))
    try:
        yield made
    finally:
        await control.close()
        await metrics.close()


async def add_nodes(made: Services, slots: int) -> list[NodeRow]:
    now = datetime.now(UTC)
    place: dict[str, Any] = {"state": NodeState.READY, "state_since": now, "joined_at": now, "heartbeat_at": now, "channel_id": "c"}
    nodes = [NodeRow(name=f"node-{n}", slots=slots, credential_hash=f"h{n}", address="127.0.0.1", **place) for n in range(2)]
    async with made.write() as session:
        session.add_all(nodes)
    return nodes


async def add_running_job(made: Services, nodes: list[NodeRow]) -> JobRow:
    now = datetime.now(UTC)
    async with made.write() as session:
        job = await job_lifecycle.submit(session, spec(), USER, now)
        job.state, job.generation, job.started_at = JobState.RUNNING, 1_000_000, now
        session.add(GenerationRow(job_id=job.id, generation=job.generation, world_size=2, started_at=now, store_token=""))
        await session.flush()
        for rank, node in enumerate(nodes):
            place = {"job_id": job.id, "generation": job.generation, "rank": rank, "node_id": node.id, "slot": 0, "local_rank": 0}
            session.add(RankRow(**place, node_rank=rank, state=RankState.RUNNING, pid=1, updated_at=now))
    return job


async def add_ended_ranks(made: Services, job: JobRow, count: int) -> None:
    """Add ended ranks in bulk: RANKS_PER_JOB of the running job's own older generations, and as many of each ended job."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
    async with made.write() as session:
        for number, first in enumerate(range(0, count, RANKS_PER_JOB)):
            job_id, here = (job.id if number == 0 else f"ended-{number}"), min(RANKS_PER_JOB, count - first)
            if number:
                await _copy(session, "jobs", "", {"id": f"'{job_id}'", "state": "'completed'"}, "id = :job", {"job": job.id})
            ended = {"job_id": f"'{job_id}'", "generation": "n.i", "ended_at": "started_at"}
            gone = {"job_id": f"'{job_id}'", "generation": "n.i", "state": "'exited'", "drained": "1", "outcome": "'completed'"}
            bound = {"job": job.id, "generation": job.generation, "count": here}
            where = "job_id = :job AND generation = :generation"
            await _copy(session, "generations, n", numbers, ended, where, bound)
            await _copy(session, "ranks, n", numbers, gone, f"{where} AND rank = 0", bound)


async def _copy(session: Any, source: str, numbers: str, changed: dict[str, str], where: str, bound: dict[str, Any]) -> None:
    table = source.partition(",")[0]
    columns = [column.name for column in JobRow.metadata.tables[table].columns]
    values = ", ".join(changed.get(name, f"{table}.{name}") for name in columns)
    await session.execute(text(f"INSERT INTO {table} ({', '.join(columns)}) {numbers} SELECT {values} FROM {source} WHERE {where}"), bound)


async def timed(work: Callable[[], Awaitable[Any]], count: int, clock: Callable[[], float] = time.perf_counter) -> Seconds:
    await work()
    taken = []
    for _ in range(count):
        began = clock()
        await work()
        taken.append(clock() - began)
    return taken


async def control_pass(ended: int, passes: int) -> Seconds:
    """Run one step of the scheduler, one observation of a node, and one calculation of that node's desired state."""
    with tempfile.TemporaryDirectory() as folder:
        async with services(Path(folder)) as made:
            nodes = await add_nodes(made, slots=2)
            job = await add_running_job(made, nodes)
            await add_ended_ranks(made, job, ended)
            scheduler = Scheduler(made)
            rank = ObservedRank(rank=0, slot=0, state=RankState.RUNNING, pid=1, step=1, progress_age=0.0)
            said = Observed(revision=0, assignments=(ObservedAssignment(job_id=job.id, generation=job.generation, ranks=(rank,)),))

            async def once() -> None:
                now = datetime.now(UTC)
                await scheduler.step_once(now)
                async with made.write() as session:
                    node = await session.get(NodeRow, nodes[0].id)
                    assert node is not None
                    await observations.apply_all(session, [NodeReport(node, said, now)])
                async with made.control.read() as session:
                    node = await session.get(NodeRow, nodes[0].id)
                    assert node is not None
                    await desired_of(session, [node])

            return await timed(once, passes, time.process_time)


async def idle_queue_pass(queue: int, passes: int) -> Seconds:
    """A step of the scheduler over a queue that does not fit, while nothing changes."""
    with tempfile.TemporaryDirectory() as folder:
        async with services(Path(folder)) as made:
            nodes = await add_nodes(made, slots=1)
            await add_running_job(made, nodes)
            now = datetime.now(UTC)
            async with made.write() as session:
                for number in range(queue):
                    await job_lifecycle.submit(session, spec(name=f"digits-{number}"), USER, now)
            scheduler = Scheduler(made)
            await scheduler.step_once(now)
            return await timed(lambda: scheduler.step_once(datetime.now(UTC)), passes, time.process_time)


async def fill_list(folder: Path, jobs: int) -> str:
    """An API key for a coordinator that has known this many jobs, each with a spec of its own."""
    now = datetime.now(UTC)
    document = spec().model_dump(mode="json")
    async with services(folder) as made, made.write() as session:
        user = UserRow(name="bench", role="admin", created_at=now)
        session.add(user)
        await session.flush()
        key, _ = await identity.create_api_key(session, user, name="bench", role="admin", now=now, expires_at=None)
        place: dict[str, Any] = {"state": JobState.COMPLETED, "created_by": "bench", "priority": 50, "world_size": 2}
        for number in range(jobs):
            name, at = f"digits-{number}", now - timedelta(seconds=jobs - number)
            named = {"name": name, "project": "vision" if number % 100 == 0 else "default", "spec": StoredSpec(document | {"name": name})}
            session.add(JobRow(**place, **named, created_at=at, queued_at=at, state_since=at))
    return key


@asynccontextmanager
async def served(folder: Path, key: str) -> AsyncIterator[tuple[httpx.AsyncClient, psutil.Process]]:
    """A coordinator process with the databases in this folder: a client of it, and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PACELINE_DATA": str(folder), "DATABASE_URL": ""}
    words = ("-m", "uvicorn", "paceline.api.main:app", "--port", str(port), "--log-level", "warning", "--no-access-log")
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env=environment)
    try:
        await ready(f"http://127.0.0.1:{port}")
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            yield client, psutil.Process(process.pid)
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), STOP_SECONDS)


async def list_jobs(jobs: int, requests: int) -> tuple[Seconds, float]:
    """Return (each request's time, the coordinator's resident memory in MiB afterwards)."""
    with tempfile.TemporaryDirectory() as folder:
        key = await fill_list(Path(folder), jobs)
        async with served(Path(folder), key) as (client, process):
            taken = [each for query in LISTS for each in await timed(lambda query=query: _list(client, query), requests // len(LISTS))]  # type: ignore[misc]
            return taken, process.memory_info().rss / (1 << 20)


async def _list(client: httpx.AsyncClient, query: dict[str, Any]) -> None:
    (await client.get("/api/v1/training/jobs", params=query)).raise_for_status()


def measure() -> list[Figure]:
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    figures = []
    for ended in ENDED_RANKS:
        taken = [seconds * 1000 for seconds in await control_pass(ended, PASSES)]
        figures.append(summarize(f"control_pass_ms_{ended}", "ms", taken, f"{ended:,} ended rank rows; goal: equal within 20 %"))
    ratio = figures[-1].median / figures[0].median
    figures.append(summarize("control_pass_ratio", "", [ratio], f"median at {ENDED_RANKS[1]:,} over that at {ENDED_RANKS[0]}; goal 1.2"))
    idle = [seconds * 1000 for seconds in await idle_queue_pass(QUEUE, PASSES)]
    figures.append(summarize("idle_queue_pass_ms", "ms", idle, f"a step, each second, over {QUEUE:,} jobs that do not fit"))
    taken, memory = await list_jobs(JOBS_IN_HISTORY, REQUESTS)
    lists = summarize("list_jobs_p95_ms", "ms", [seconds * 1000 for seconds in taken], f"{JOBS_IN_HISTORY:,} jobs in history; goal 100")
    return [*figures, lists, summarize("list_jobs_rss_mib", "MiB", [memory], "the coordinator afterwards; goal 600")]


if __name__ == "__main__":
    run(measure, __doc__)
