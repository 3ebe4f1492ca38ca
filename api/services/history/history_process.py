"""Questions about whole histories, and their answers: computed alike here and in a worker process, which has databases of its own."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

from paceline.api.services.history import comparison, goodput, samples
from paceline.api.services.jobs import jobs
from paceline.db.session import Database, open_databases

MOST_SECONDS = 60.0


@dataclass(frozen=True)
class HistoryQuestion:
    kind: Literal["samples", "goodput", "compare"]
    job_ids: tuple[str, ...]
    details: tuple[tuple[str, Hashable], ...] = ()

    @property
    def depends_on_time(self) -> bool:
        """Whether the answer changes with time alone: that of a running job is another one a second later."""
        return self.kind == "goodput"


async def answer(question: HistoryQuestion, control: Database, metrics: Database, now: datetime) -> Any:
    async with control.read() as session, metrics.read() as points:
        if question.kind == "compare":
            return await comparison.compare(session, points, question.job_ids)
        job = await jobs.find(session, question.job_ids[0])
        if question.kind == "goodput":
            return await goodput.of_job(session, points, job, now)
        details: dict[str, Any] = dict(question.details)
        return await samples.of_job(session, points, job, **details)


# --- in a worker


@dataclass(frozen=True)
class Worker:
    loop: asyncio.AbstractEventLoop
    control: Database
    metrics: Database


@functools.cache
def _worker(data: Path, database_url: str | None) -> Worker:
    return Worker(asyncio.new_event_loop(), *open_databases(data, database_url))


def run(question: HistoryQuestion, data: Path, database_url: str | None, now: datetime) -> Any:
    """The answer, from a worker process. Raises what `answer` raises, and TimeoutError after MOST_SECONDS."""
    worker = _worker(data, database_url)
    limited = asyncio.wait_for(answer(question, worker.control, worker.metrics, now), MOST_SECONDS)
    return worker.loop.run_until_complete(limited)


def leave_with_parent() -> None:
    """End this worker when its coordinator was killed: its queue would never tell it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    threading.Thread(target=_leave, args=(parent.sentinel,), daemon=True).start()


def _leave(sentinel: int) -> None:
    wait([sentinel])
    os._exit(0)
