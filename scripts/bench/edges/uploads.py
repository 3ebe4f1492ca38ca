"""Uploads that a coordinator acknowledges each second: 1,000 simulated agents, each with one rank that tells 10 points a second.

Every agent keeps one connection and one upload in flight, as a real one does; its next second begins when its time has come and the last
upload is acknowledged. The figures say what was acknowledged, how late (p50, p99), what failed, and what it cost the coordinator. Load
generator and coordinator share the machine: the CPU time of each upload says more than the rate when others use it too.

    python -m scripts.bench.edges.uploads [--seconds 20] [--agents 1000] [--databases NAME ...] [--postgres URL] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from sqlalchemy import func, select, update

from paceline.cluster.protocol import UPLOAD_PATH
from paceline.cluster.states import JobState, NodeState, RankState
from paceline.credentials import NODE_PREFIX, hash_secret, new_secret
from paceline.db.base import new_id
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.session import open_databases
from paceline.monitoring.points import MetricRecord, RankBatch, Upload, UploadReply
from paceline.training.spec.stored import StoredSpec
from scripts.bench.edges.load import databases
from scripts.bench.edges.load.coordinator import coordinator
from scripts.bench.figures import Figure, report

RANKS_PER_JOB = 8
NAMES = ("loss", "learning_rate", "gradient_norm", "step_seconds", "data_seconds", *(f"metric_{n}" for n in range(5)))
GOAL = "goal: 1,000/s, acknowledged p99 500 ms, no failure"
UPLOAD_SECONDS = 30.0
HEARTBEAT_SECONDS = 3.0
SPEC = {"name": "bench", "script": {"path": "bench.py"}, "resources": {"nodes": RANKS_PER_JOB}}


@dataclass(frozen=True)
class Agent:
    credential: str
    job_id: str
    rank: int


@dataclass
class Outcome:
    """Accumulates the results of all uploads."""

    seconds: list[float] = field(default_factory=list)  # from an upload's begin to its acknowledgement
    failures: Counter[str] = field(default_factory=Counter)


async def seed(data: Path, database_url: str | None, count: int) -> list[Agent]:
    """Add running jobs of RANKS_PER_JOB ranks, one on each node; return what runs on each."""
    control, metrics = open_databases(data, database_url)
    now, agents = datetime.now(UTC), []
    async with control.write() as session:
        for number in range(count):
            rank = number % RANKS_PER_JOB
            if rank == 0:
                job = JobRow(
                    id=new_id(), name="bench", project="default", priority=50, state=JobState.RUNNING, spec=StoredSpec(SPEC), generation=1
                )
                job.world_size, job.created_by, job.created_at, job.queued_at, job.state_since = RANKS_PER_JOB, "bench", now, now, now
                session.add(job)
                await session.flush()
                session.add(GenerationRow(job_id=job.id, generation=1, world_size=RANKS_PER_JOB, started_at=now, store_token=""))
            agent = Agent(new_secret(NODE_PREFIX), job.id, rank)
            node = NodeRow(id=new_id(), name=f"agent-{number}", state=NodeState.READY, state_since=now, joined_at=now)
            node.credential_hash = hash_secret(agent.credential)
            session.add(node)
            await session.flush()
            place = {"job_id": job.id, "generation": 1, "rank": rank, "node_id": node.id}
            session.add(RankRow(**place, slot=0, local_rank=0, node_rank=rank, state=RankState.RUNNING, updated_at=now))
            agents.append(agent)
    await control.close()
    await metrics.close()
    return agents


def request(agent: Agent, step: int, port: int) -> bytes:
    record = MetricRecord(seq=step, step=step, time=time.time(), values={name: math.sin(step) + 2 for name in NAMES})
    body = msgspec.json.encode(Upload(batches=[RankBatch(job_id=agent.job_id, generation=1, rank=agent.rank, metrics=[record])]))
    head = (
        f"POST {UPLOAD_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {agent.credential}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> tuple[int, bytes]:
    """Send one request on a kept connection; return (status, body)."""
    writer.write(message)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return status, await reader.readexactly(length)


async def run_agent(agent: Agent, port: int, begins: float, ends: float, outcome: Outcome) -> None:
    """Upload once a second, from this agent's own moment on. Failures are counted, and sent again."""
    step, due = 1, begins + random.random()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while due < ends:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            async with asyncio.timeout(UPLOAD_SECONDS):
                status, body = await exchange(reader, writer, request(agent, step, port))
            took = time.monotonic() - began
            if status == 200 and msgspec.json.decode(body, type=UploadReply).acknowledged[0].metrics >= step:
                outcome.seconds.append(took)
                step += 1
            else:
                outcome.failures[f"{status} {body[:120].decode(errors='replace')}"] += 1
            due = max(due + 1.0, time.monotonic())
    except (OSError, EOFError, TimeoutError) as error:
        outcome.failures[type(error).__name__] += 1
    finally:
        writer.close()


async def stay_present(data: Path, database_url: str | None, ends: float) -> None:
    """Note a heartbeat of every node again and again: they have no channels here, and are not to be given up for that. Raises RuntimeError where
    some were."""
    control, metrics = open_databases(data, database_url)
    while (left := ends - time.monotonic()) > 0:
        async with control.write() as session:
            await session.execute(update(NodeRow).values(heartbeat_at=datetime.now(UTC)))
        await asyncio.sleep(min(HEARTBEAT_SECONDS, left))
    async with control.read() as session:
        given_up = await session.scalar(select(func.count()).where(NodeRow.state != NodeState.READY))
    if given_up:
        raise RuntimeError(f"the coordinator gave up {given_up} nodes: what it cost would be that")
    await control.close()
    await metrics.close()


async def measure(database: str, database_url: str | None, count: int, seconds: float, port: int | None) -> list[Figure]:
    agents, outcome = list[Agent](), Outcome()

    async def prepare(data: Path) -> None:
        agents.extend(await seed(data, database_url, count))

    async with coordinator(0, port=port, database_url=database_url, prepare=prepare) as target:
        before, begins = target.cpu_seconds(), time.monotonic()
        ends, data = begins + seconds, target.log.parent
        uploads = (run_agent(agent, target.port, begins, ends, outcome) for agent in agents)
        await asyncio.gather(stay_present(data, database_url, ends), *uploads)
        took, cpu = time.monotonic() - begins, target.cpu_seconds() - before
    return figures(database, outcome, took, cpu, count)


def figures(database: str, outcome: Outcome, took: float, cpu: float, agents: int) -> list[Figure]:
    done = sorted(outcome.seconds) or [math.inf]
    p50, p99 = (done[min(len(done) - 1, math.ceil(share * len(done)) - 1)] * 1000 for share in (0.5, 0.99))
    failed = sum(outcome.failures.values())
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    why = f"; failed: {dict(outcome.failures.most_common(3))}" if failed else ""
    said = f"{agents} agents, {took:.0f} s, {failed} failed, coordinator {cpu / took:.0%} of a core, load {load}; {GOAL}{why}"
    rate, cost = len(outcome.seconds) / took, 1000 * cpu / max(1, len(outcome.seconds))
    return [
        Figure(f"uploads_per_s_{database}", "1/s", rate, rate, len(outcome.seconds), said),
        Figure(f"upload_acknowledged_ms_{database}", "ms", p50, p99, len(outcome.seconds), "p95 column: p99"),
        Figure(f"upload_cpu_ms_{database}", "ms", cost, cost, len(outcome.seconds), "CPU time of the coordinator, its loops included"),
    ]


async def run(arguments: argparse.Namespace) -> Sequence[Figure]:
    found: list[Figure] = []
    for name in databases.chosen(arguments):
        async with databases.database_url(name, arguments.postgres) as url:
            found += await measure(name, url, arguments.agents, arguments.seconds, arguments.port)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--port", type=int, help="of the coordinator; default: a free one")
    databases.add_arguments(parser)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report(list(asyncio.run(run(arguments))), arguments.json)


if __name__ == "__main__":
    main()
