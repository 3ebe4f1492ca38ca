"""How long the dashboard's list of jobs takes with 10,000 jobs and filters on, over HTTP, on SQLite. The processor time is what a
busy machine does not blur.

Jobs are filtered by nothing, project, user, model, a label, state, text in a description or label, the archive, or all of these at once. The first two
pages are asked for in each order, each with its place in the list (`count=true`), as the dashboard does.

    python -m scripts.bench.jobs_page [--json FILE]
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil

from paceline.api.core import identity
from paceline.cluster.states import JobState
from paceline.db.models.identity import UserRow
from paceline.db.models.jobs import JobRow
from paceline.training.spec.stored import StoredSpec
from scripts.bench.edges.control import Seconds, served, services, spec, timed
from scripts.bench.figures import Figure, run, summarize

JOBS, ROUNDS, PAGE = 10_000, 3, 50
LIST = "/api/v1/training/jobs"
SORTS = ("-created_at", "name", "-priority")
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"project": "project-3"},
    {"user": "user-2,user-4"},
    {"model": "script"},
    {"label.team": "team-1"},
    {"status": "failed", "project": "project-1,project-2"},
    {"q": "baseline 99"},
    {"q": "seed=7"},
    {"archived": "only"},
    {"archived": "include", "q": "nothing like it"},
    {"project": "project-3", "user": "user-2", "model": "mlp", "label.team": "team-1", "q": "baseline", "status": "completed,failed"},
)


async def fill(folder: Path, jobs: int) -> str:
    """Store the jobs of a team. Returns an API key."""
    now = datetime.now(UTC)
    trained, script = spec().model_dump(mode="json"), {"script": {"path": "train.py"}}
    async with services(folder) as made, made.write() as session:
        user = UserRow(name="bench", role="admin", created_at=now)
        session.add(user)
        await session.flush()
        key, _ = await identity.create_api_key(session, user, name="bench", role="admin", now=now, expires_at=None)
        for number in range(jobs):
            at = now - timedelta(minutes=jobs - number)
            own = {"name": f"digits-{number}", "description": f"baseline {number % 1000} of the ablation over learning rates"}
            session.add(
                JobRow(
                    name=own["name"],
                    project=f"project-{number % 10}",
                    priority=number % 100,
                    labels={"team": f"team-{number % 4}", "seed": str(number % 8)},
                    state=JobState.FAILED if number % 9 == 0 else JobState.COMPLETED,
                    spec=StoredSpec((trained | own) if number % 3 else (trained | script | own)),
                    world_size=2,
                    created_by=f"user-{number % 7}",
                    created_at=at,
                    queued_at=at,
                    state_since=at,
                    started_at=at,
                    ended_at=at + timedelta(hours=1),
                    archived_at=now if number % 5 == 0 else None,
                )
            )
    return key


async def pages(client: httpx.AsyncClient) -> Seconds:
    """Ask for the first two pages of every filter and order. Returns how long each took."""
    taken = Seconds()
    for wanted in FILTERS:
        for sort in SORTS:
            query: dict[str, Any] = {"limit": PAGE, "count": "true", "sort": sort, **wanted}
            for _ in range(2):
                began = time.perf_counter()
                answer = (await client.get(LIST, params=query)).raise_for_status().json()
                taken.append(time.perf_counter() - began)
                if answer["next_cursor"] is None:
                    break
                query["cursor"] = answer["next_cursor"]
    return taken


async def facets(client: httpx.AsyncClient) -> None:
    (await client.get("/api/v1/training/job-facets")).raise_for_status()


def cpu_seconds(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        key = await fill(Path(folder), JOBS)
        async with served(Path(folder), key) as (client, process):
            await pages(client)
            before = cpu_seconds(process)
            taken = [each * 1000 for _ in range(ROUNDS) for each in await pages(client)]
            cpu = 1000 * (cpu_seconds(process) - before) / len(taken)
            told = [each * 1000 for each in await timed(lambda: facets(client), 10)]
    return [
        summarize("jobs_page_p95_ms", "ms", taken, f"{JOBS:,} jobs, {len(FILTERS)} filters in {len(SORTS)} orders; goal 100"),
        summarize("jobs_page_cpu_ms", "ms CPU", [cpu], "of the coordinator, for each of these requests"),
        summarize("job_facets_ms", "ms", told, "the values that can be filtered by"),
    ]


def measure() -> list[Figure]:
    return asyncio.run(_measure())


if __name__ == "__main__":
    run(measure, __doc__)
