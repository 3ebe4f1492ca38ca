"""How long each GET keeps the event loop, on a coordinator with a long history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import insert

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.lifecycle import events
from paceline.cluster.states import CheckpointState, JobState
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.points import RankBatch
from tests import factories
from tests.api.test_identity import http_routes
from tests.loop_watchdog import GOAL_SECONDS, watched

RANKS, STEPS, JOBS, EVENTS, LINES = 64, 1_000, 2_000, 2_000, 5_000
#: CPU time of `fixed_work` on the machine that GOAL_SECONDS is for.
WORK_SECONDS = 0.006
#: A busy machine's caches cost the same work twice.
SPREAD = 2.0
#: As much as each may be asked for.
QUERIES = {
    "/api/v1/training/jobs": {"limit": "200"},
    "/api/v1/checkpoints": {"limit": "200"},
    "/api/v1/cluster/nodes": {"limit": "200"},
    "/api/v1/events": {"limit": "200"},
    "/api/v1/training/jobs/{job_id}/events": {"limit": "200"},
    "/api/v1/training/jobs/{job_id}/logs": {"limit": "2000"},
    "/api/v1/training/compare": {"jobs": "{job_id},{other_id}"},
}
IDS = ("{job_id}", "{other_id}", "{node_id}", "{checkpoint_id}")


def fixed_work() -> float:
    before = time.thread_time()
    assert len({number: str(number) for number in range(60_000)}) == 60_000
    return time.thread_time() - before


async def add_history(services: Services, small: JobRow, large: JobRow) -> None:
    """Ended jobs by the thousand, and events of the large one."""
    columns = {column.key: getattr(small, column.key) for column in JobRow.__table__.columns}
    async with services.write() as session:
        rows = [
            columns | {"id": f"ended-{n}", "name": f"ended-{n}", "state": JobState.COMPLETED, "ended_at": factories.START}
            for n in range(JOBS)
        ]
        await session.execute(insert(JobRow), rows)
        for number in range(EVENTS):
            await events.record(session, type="rank.exited", actor=SYSTEM, cause="", message=f"exit {number}", job_id=large.id)


async def add_job(services: Services, writer: Any, node: NodeRow, ranks: int, steps: int) -> tuple[JobRow, str]:
    """(a running job with points and lines that no refresh has rolled up yet, its checkpoint)."""
    parts: dict[str, Any] = {
        "parallelism": {"strategy": "ddp"},
        "training": {"steps": STEPS, "global_batch_size": RANKS, "micro_batch_size": 1},
        "resources": {"nodes": 1, "slots_per_node": ranks},
    }
    async with services.write() as session:
        job = await factories.create_running_job(session, node, spec=factories.job_spec(**parts))
        checkpoint = factories.checkpoint(job, node, step=10, state=CheckpointState.COMMITTED)
        session.add(checkpoint)
    place: dict[str, Any] = {"job_id": job.id, "generation": 1}
    for rank in range(ranks):
        await writer.store([RankBatch(**place, rank=rank, metrics=factories.records(1, steps, busy_seconds=0.1, step_seconds=0.2))])
    await writer.store([RankBatch(**place, rank=0, logs=factories.log_lines(min(steps, LINES)))])
    return job, checkpoint.id


@pytest.fixture
async def ids(app: FastAPI, services: Services) -> Mapping[str, dict[str, str]]:
    """The ids of a job with little of everything, and of one with much."""
    async with services.write() as session:
        node, _ = await factories.create_node(session, slots=RANKS)
    small, of_small = await add_job(services, app.state.writer, node, 2, 10)
    large, of_large = await add_job(services, app.state.writer, node, RANKS, STEPS)
    await add_history(services, small, large)
    found = {"small": (small, of_small, large), "large": (large, of_large, small)}
    return {name: dict(zip(IDS, (job.id, other.id, node.id, kept), strict=True)) for name, (job, kept, other) in found.items()}


def filled(text: str, ids: Mapping[str, str]) -> str:
    for name, value in ids.items():
        text = text.replace(name, value)
    return text.replace("{", "").replace("}", "")


@pytest.mark.slow("stores 64,000 points and 2,000 jobs, then asks for everything twice")
@pytest.mark.timeout(600)
async def test_no_get_keeps_the_event_loop_whatever_the_history_is(
    app: FastAPI, ids: Mapping[str, dict[str, str]], client: httpx.AsyncClient
) -> None:
    """A job's performance took a quarter of a second of it, where its points had no roll-ups yet. Each is asked for of a small job first: what is loaded and
    compiled once is no request's."""
    client.timeout = httpx.Timeout(300)
    paths = sorted({path for method, path in http_routes(app) if method == "GET"})
    taken: dict[str, tuple[float, int, str]] = {}
    for job in ("small", "large"):
        for path in paths:
            query = {name: filled(value, ids[job]) for name, value in QUERIES.get(path, {}).items()}
            with watched() as watch:
                answer = await client.get(filled(path, ids[job]), params=query)
            taken[path] = (watch.longest, answer.status_code, watch.callback)
    answered = [path for path, (_, status, _) in taken.items() if status == 200]
    assert {*QUERIES} <= {*answered}, {path: taken[path] for path in QUERIES}
    assert len(answered) > 50
    allowed = GOAL_SECONDS * SPREAD * max(1.0, min(fixed_work() for _ in range(5)) / WORK_SECONDS)
    assert {path: each for path, each in taken.items() if each[0] > allowed} == {}, f"more than {allowed * 1000:.0f} ms"
