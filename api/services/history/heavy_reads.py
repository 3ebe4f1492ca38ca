"""Answers that need the whole history of a job: few at a time, kept while nothing new is known, computed in a process of their own.

    answer = await reads.get(Question("samples", (job_id,), (("limit", 50),)))

A short history is read here, in pieces. A long one goes to a worker process (`history_process.py`), so that the event loop is not
held up; its answer may be given again for some times as long as it took, whatever was stored meanwhile, but not once the job has ended.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any, TypeVar, cast

from paceline.api.core.admission import Admission
from paceline.api.core.context import Services
from paceline.api.errors import HeadOnlyError, ProblemError, not_found
from paceline.api.services.history import history_process
from paceline.api.services.history.history_process import HistoryQuestion, Work
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import metrics as metric_rows
from paceline.db.repositories import step_records

T = TypeVar("T")
#: Histories up to so many steps, of the ranks that are read, are read in the event loop.
SHORT_STEPS = 1_000
AT_ONCE = 2
WAIT_SECONDS = 10.0
MAX_KEPT = 128
#: What took a second to compute is told again for so many.
TOLD_AGAIN = 5.0


@dataclass(frozen=True)
class SourceVersions:
    """The versions that an answer was made from: while they are equal, nothing that it depends on has changed."""

    versions: tuple[tuple[int, int, int], ...]  # of each job: its row's version, its newest record and event
    ended: bool
    steps: int  # that are read, counted once for each rank


@dataclass(frozen=True)
class KeptAnswer:
    answer: Any
    state: SourceVersions
    at: float
    took: float  # seconds, of the reading alone; 0 where it was computed here

    def is_current(self, question: HistoryQuestion, state: SourceVersions) -> bool:
        age = monotonic() - self.at
        same = self.state.versions == state.versions and (state.ended or not question.depends_on_time)
        return same or (age < TOLD_AGAIN * self.took and self.state.ended == state.ended)


@dataclass(eq=False)
class HeavyReads:
    services: Services
    turns: Admission = field(default_factory=lambda: Admission("reads of whole histories", AT_ONCE, WAIT_SECONDS))
    short_steps: int = SHORT_STEPS
    _kept: OrderedDict[HistoryQuestion, KeptAnswer] = field(default_factory=OrderedDict)
    _under_way: dict[Hashable, asyncio.Task[Any]] = field(default_factory=dict)
    _pool: ProcessPoolExecutor | None = None

    async def get(self, question: HistoryQuestion, now: datetime, *, head: bool = False) -> Any:
        """The answer to a question. A question that is being computed is waited for. Raises ProblemError `busy` when too many are, and
        HeadOnlyError in place of an answer to a HEAD. No session is open while it waits."""
        state = await self._state(question)
        if head:
            raise HeadOnlyError
        kept = self._kept.get(question)
        if kept is not None and kept.is_current(question, state):
            return kept.answer
        return await self._once(question, lambda: self._compute(question, state, now))

    async def elsewhere(self, key: Hashable, work: Work[T]) -> T:
        """The result of work in a worker process, where nothing is kept of it. Work with the key of one that is under way is that one. Raises as `get`."""

        async def in_turn() -> T:
            async with self.turns.turn():
                return await self._elsewhere(work)

        return cast("T", await self._once(key, in_turn))

    async def _once(self, key: Hashable, compute: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(compute())
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)

    async def _state(self, question: HistoryQuestion) -> SourceVersions:
        versions, ended, steps = [], True, 0
        async with self.services.control.read() as session, self.services.metrics.read() as points:
            for job_id in question.job_ids:
                job = await job_rows.get(session, job_id)
                if job is None:
                    raise not_found("job", job_id)
                ended = ended and job.ended_at is not None
                newest = await metric_rows.newest_seq(points, job_id), await event_rows.newest_seq_of_job(session, job_id)
                versions.append((job.version, *newest))
                ranks = max(1, job.world_size) if question.is_of_all_ranks else 1
                steps += ranks * await step_records.most_records(points, job_id)
        return SourceVersions(tuple(versions), ended, steps)

    async def _compute(self, question: HistoryQuestion, state: SourceVersions, now: datetime) -> Any:
        asked = monotonic()
        async with self.turns.turn():
            if state.steps <= self.short_steps:
                answer, took = await history_process.answer(question, self.services.control, self.services.metrics, now), 0.0
            else:
                answer, took = await self._elsewhere(functools.partial(history_process.timed_answer, question, now, asked))
        self._kept[question] = KeptAnswer(answer, state, monotonic(), took)
        self._kept.move_to_end(question)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return answer

    async def _elsewhere(self, work: Work[T]) -> T:
        settings = self.services.settings
        run = functools.partial(history_process.run, work, settings.data, settings.database_url)
        try:
            return cast("T", await asyncio.get_running_loop().run_in_executor(self._workers(), run))
        except BrokenProcessPool:
            self.close()
            raise _busy("the process that reads histories has died") from None
        except TimeoutError:
            raise _busy(f"reading the history took over {history_process.MOST_SECONDS:.0f} s") from None

    def _workers(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(AT_ONCE, mp_context=context, initializer=history_process.leave_with_parent)
        return self._pool

    def forget(self) -> None:
        """Forget all answers, so that everything is computed again."""
        self._kept.clear()

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def _busy(why: str) -> ProblemError:
    return ProblemError("busy", f"{why}; try again", headers={"Retry-After": "5"})
