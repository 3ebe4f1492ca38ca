"""Questions about whole histories, and their answers: computed alike here and in a worker process, which has databases of its own.

Hazard: what answers is imported where it is used. A worker imports this module to begin with, and one that analyzes an experiment
(`experiments/analysis_process.py`) would import for as long as it then takes for the analysis.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import threading
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeVar

from paceline.db.session import Database, open_databases

T = TypeVar("T")
#: What a worker process does with its databases: a partial of a function of a module, since it is sent there.
Work = Callable[[Database, Database], Coroutine[Any, Any, T]]
MOST_SECONDS = 60.0


@dataclass(frozen=True)
class HistoryQuestion:
    kind: Literal["samples", "goodput", "compare", "heatmap", "card_heatmap"]
    job_ids: tuple[str, ...]
    details: tuple[tuple[str, Hashable], ...] = ()

    @property
    def depends_on_time(self) -> bool:
        """Whether the answer changes with time alone: that of a running job is another one a second later."""
        return self.kind == "goodput"

    @property
    def is_of_all_ranks(self) -> bool:
        """Whether the points of every rank are read; else those of rank 0."""
        return self.kind in ("heatmap", "card_heatmap")


async def answer(question: HistoryQuestion, control: Database, metrics: Database, now: datetime) -> Any:
    from paceline.api.services.history import card_heatmap, comparison, goodput, heatmap, samples
    from paceline.api.services.jobs import jobs

    async with control.read() as session, metrics.read() as points:
        if question.kind == "compare":
            return await comparison.compare(session, points, question.job_ids)
        job = await jobs.find(session, question.job_ids[0])
        if question.kind == "goodput":
            return await goodput.of_job(session, points, job, now)
        details: dict[str, Any] = dict(question.details)
        if question.kind == "card_heatmap":
            return await card_heatmap.of_job(session, points, job, now, **details)
        if question.kind == "heatmap":
            return await heatmap.of_job(session, points, job, **details)
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


async def timed_answer(question: HistoryQuestion, now: datetime, asked: float, control: Database, metrics: Database) -> tuple[Any, float]:
    """Return the answer, and the seconds that it took: `Work` once the rest is given. It was `now` when this machine's monotonic clock was `asked`:
    until a worker has started, the job goes on."""
    began = monotonic()
    found = await answer(question, control, metrics, now + timedelta(seconds=began - asked))
    return found, monotonic() - began


def run(work: Work[T], data: Path, database_url: str | None) -> T:
    """Do work in this process, which is a worker. Raises what it raises, and TimeoutError after MOST_SECONDS."""
    worker = _worker(data, database_url)
    return worker.loop.run_until_complete(asyncio.wait_for(work(worker.control, worker.metrics), MOST_SECONDS))


def leave_with_parent() -> None:
    """End this worker when its coordinator was killed: its queue would never tell it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    threading.Thread(target=_leave, args=(parent.sentinel,), daemon=True).start()


def _leave(sentinel: int) -> None:
    wait([sentinel])
    os._exit(0)
