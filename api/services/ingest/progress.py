"""Keeps each job's `progress` near rank 0's newest record: collected in memory, written at most five times a second.

The `progress` column is shared: this owns step, losses, rates, ETA and updated_at, and leaves every other key as it finds it.
Losing a pending write costs nothing, the next record brings it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.background import in_background
from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.ingest import bad_losses
from paceline.api.services.ingest.bad_losses import BadLossReport, LossReporter
from paceline.api.services.ingest.history_room import HistoryRoom
from paceline.api.services.ingest.screening import refusal
from paceline.api.services.lifecycle import job_lifecycle
from paceline.db.errors import DatabaseError
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import aged
from paceline.db.repositories import progress as repository
from paceline.monitoring.loss_watch import BadLossKind, LossWatch
from paceline.monitoring.points import MetricRecord, RankBatch

logger = logging.getLogger(__name__)
MINIMUM_SECONDS_BETWEEN_WRITES = 0.2
#: How often jobs that have ended are forgotten: not with their last records, which are stored before they end.
FORGET_SECONDS = 60.0
SPEED_WINDOW_STEPS = 50
LOSS = "loss"
NOT_FINITE = "not_finite"
EVAL_LOSS = "eval_loss"
LATEST = (LOSS, EVAL_LOSS)
RATES = ("tokens_per_second", "samples_per_second", "mfu")
#: The key in the progress for the lowest value of each metric whose lowest value is kept.
_BEST = {LOSS: "best_loss", EVAL_LOSS: "best_eval_loss"}


@dataclass(frozen=True)
class ReportedBadLoss:
    """A bad loss that the coordinator found in a script's points."""

    step: int
    kind: BadLossKind
    loss: float
    limit: float | None  # of a spike


@dataclass
class JobTrack:
    """The recent reports of rank 0 of the newest generation."""

    generation: int
    steps: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=SPEED_WINDOW_STEPS))
    values: dict[str, float] = field(default_factory=dict)
    #: The rates of the last steps, each with its step.
    rates: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)
    #: The lowest values, by their name in the progress.
    best: dict[str, float] = field(default_factory=dict)
    #: The earliest report that this process has heard of: its step, and its time in seconds since the epoch. Until it is written.
    earliest: tuple[int, float] | None = None
    watch: LossWatch = field(default_factory=LossWatch)
    watched_step: int = -1
    #: Bad losses that are worth telling, until they are written.
    bad: list[ReportedBadLoss] = field(default_factory=list)

    def watch_loss(self, record: MetricRecord) -> None:
        if LOSS not in record.values or record.step <= self.watched_step:
            return
        loss, self.watched_step = float(record.values[LOSS]), record.step
        kind = self.watch.kind_of(loss)
        if kind is not None and self.watch.is_news(kind, record.step):
            self.bad.append(ReportedBadLoss(record.step, kind, loss, self.watch.limit if kind == "spike" else None))
        self.watch = self.watch.after(record.step, loss, kind)

    def note_best(self, record: MetricRecord) -> None:
        for name, best in _BEST.items():
            value = float(record.values.get(name, math.nan))
            if math.isfinite(value):
                self.best[best] = min(value, self.best.get(best, value))

    def add(self, record: MetricRecord) -> None:
        """Add a report of the newest step or a newer one. A step may come in several records: its evaluation does."""
        newest = self.steps[-1][0] if self.steps else None
        if newest is not None and record.step < newest:
            return
        if record.step != newest:
            self.steps.append((record.step, record.time))
        self.values.update({name: float(record.values[name]) for name in LATEST if name in record.values})
        for name in RATES:
            rates = self.rates.get(name)
            if name in record.values and (not rates or rates[-1][0] < record.step):
                self.rates.setdefault(name, deque(maxlen=SPEED_WINDOW_STEPS)).append((record.step, float(record.values[name])))

    def document(self, total_steps: int | None, before: Mapping[str, Any]) -> dict[str, Any]:
        """The progress now. `before`: as it is stored, with the best values of earlier generations."""
        step, at = self.steps[-1]
        best = {name: min(value, before[name]) if before.get(name) is not None else value for name, value in self.best.items()}
        return {
            "step": step,
            **({} if total_steps is None else {"total_steps": total_steps}),
            **self.values,
            **{name: rate_over([rate for _, rate in rates]) for name, rates in self.rates.items()},
            **best,
            "eta_seconds": self.eta(total_steps),
            "updated_at": datetime.fromtimestamp(at, UTC).isoformat(),
        }

    def eta(self, total_steps: int | None) -> float | None:
        """Seconds left at the speed of the last steps; None while that is unknown."""
        (first, began), (last, ended) = self.steps[0], self.steps[-1]
        if total_steps is None or last == first or ended <= began:
            return None
        return max(0, total_steps - last) * (ended - began) / (last - first)


def rate_over(rates: Sequence[float]) -> float:
    """The rate over several steps of one size, from the rate of each: their harmonic mean, since a slow step lasts longer. The newest
    rate where none of them is a positive number."""
    positive = [rate for rate in rates if rate > 0 and math.isfinite(rate)]
    return statistics.harmonic_mean(positive) if positive else rates[-1]


@dataclass
class ProgressKeeper:
    services: Services
    _room: HistoryRoom = field(init=False)
    _tracks: dict[str, JobTrack] = field(default_factory=dict)
    _dirty: set[str] = field(default_factory=set)
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _flushing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _forgot_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._room = HistoryRoom(self.services.disk)

    def note(self, batch: RankBatch) -> None:
        """Note the progress in this batch. Late records of an older generation are ignored."""
        if batch.rank != 0:
            return
        records = [record for record in batch.metrics if refusal(record) is None]
        if not records:
            return
        earliest = records[0]
        track = self._tracks.get(batch.job_id)
        if track is None or batch.generation > track.generation:
            track = self._tracks[batch.job_id] = JobTrack(batch.generation, earliest=(earliest.step, earliest.time))
        if batch.generation < track.generation:
            return
        for record in records[-SPEED_WINDOW_STEPS:]:
            track.add(record)
        for record in records:
            track.watch_loss(record)
            track.note_best(record)
        self._dirty.add(batch.job_id)
        self._work.set()

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("job-progress", self._run)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            try:
                await self.flush()
                if time.monotonic() - self._forgot_at >= FORGET_SECONDS:
                    await self._forget_ended()
            except (SQLAlchemyError, DatabaseError) as error:
                logger.warning("progress was not written, the next record tries again: %s", error)
            await asyncio.sleep(MINIMUM_SECONDS_BETWEEN_WRITES)

    async def flush(self, job_ids: Set[str] | None = None) -> None:
        """Write what is pending, of these jobs or of all, in one transaction. On failure it stays pending."""
        async with self._flushing:
            dirty = self._dirty if job_ids is None else self._dirty & job_ids
            self._dirty = self._dirty - dirty
            if not self._dirty:
                self._work.clear()
            if not dirty:
                return
            try:
                await self._write(dirty)
            except BaseException:
                self._dirty |= dirty
                self._work.set()
                raise

    async def _forget_ended(self) -> None:
        self._forgot_at = time.monotonic()
        async with self._flushing:
            async with self.services.control.read() as session:
                ended = await aged.ended_jobs(session, self._tracks.keys())
            for job_id in ended - self._dirty:
                del self._tracks[job_id]

    async def _write(self, job_ids: set[str]) -> None:
        """Write progress. A job whose progress cannot be written holds up no other."""
        try:
            await self._write_together(job_ids)
        except (DatabaseError, OperationalError, InterfaceError):
            raise
        except Exception:
            logger.exception("the progress of %d jobs could not be written together; each is written by itself", len(job_ids))
            for job_id in job_ids:
                await self._write_alone(job_id)

    async def _write_alone(self, job_id: str) -> None:
        try:
            await self._write_together({job_id})
        except (DatabaseError, OperationalError, InterfaceError):
            raise
        except Exception:
            logger.exception("the progress of job %s cannot be written; its next record tries again", job_id)
            self._tracks.pop(job_id, None)

    async def _write_together(self, job_ids: set[str]) -> None:
        told: list[tuple[JobTrack, int]] = []
        saved: dict[str, dict[str, Any]] = {}
        async with self.services.write() as session:
            for job_id, state in (await repository.load(session, job_ids)).items():
                track = self._tracks.get(job_id)
                if track is None:
                    continue
                set_back_to = job_lifecycle.step_set_back_to(state.progress, track.generation)
                if set_back_to is None and state.still_counts(track.generation, track.steps[-1][0]):
                    state = without_outlived_mark(state, track)
                    bad = tuple(track.bad)  # more may come meanwhile
                    news = await self._record_bad_losses(session, job_id, track.generation, bad, state)
                    told.append((track, len(bad)))
                    before = state.progress or {}
                    saved[job_id] = {**before, **track.document(state.total_steps, before), **news}
                if track.earliest is not None:
                    step, at = track.earliest
                    first = min(datetime.fromtimestamp(at, UTC), self.services.now())
                    await repository.note_first_step(session, job_id, track.generation, step, first)
                    track.earliest = None
            await repository.save(session, saved)
        for track, count in told:
            del track.bad[:count]

    async def _record_bad_losses(
        self, session: AsyncSession, job_id: str, generation: int, bad: Sequence[ReportedBadLoss], state: repository.StoredProgress
    ) -> dict[str, Any]:
        """Record the bad losses of a job. Returns the other changes of its progress. Events are for scripts alone: a trainer of ours reports
        its losses itself."""
        if not bad or (job := await session.get(JobRow, job_id)) is None:
            return {}
        is_script, news = job.spec.is_script, dict[str, Any]()
        for found in bad:
            policy = bad_losses.policy_of(job, found.kind)
            if found.kind == "not_finite" and (is_script or policy == "warn"):
                if not_finite_step({**(state.progress or {}), **news}, generation) is not None:
                    continue  # told before: what follows is of no use in any case
                news[NOT_FINITE] = {
                    "step": spoilt_since(state.progress, generation, state.start_step) or found.step,
                    "generation": generation,
                }
            if is_script:
                told = BadLossReport(found.step, found.kind, policy, found.loss, limit=found.limit)
                known = {**(state.progress or {}), **news}
                has_room = await self._room.take_essential(session, job_id) is None
                reporter = LossReporter(SYSTEM, generation, has_room=has_room)
                news |= await bad_losses.record_bad_loss(session, job, known, told, reporter, self.services.now())
        return news


def without_outlived_mark(state: repository.StoredProgress, track: JobTrack) -> repository.StoredProgress:
    """Leave out the mark of an earlier generation's loss that was not finite, once the newest generation does that step again: its state is from
    before it. Kept, it would count for later generations, which begin behind it."""
    known = (state.progress or {}).get(NOT_FINITE)
    told = [step for step in (state.first_step, track.earliest and track.earliest[0]) if step is not None]
    if not known or not told or not known["generation"] < track.generation == state.generation or min(told) >= known["step"]:
        return state
    return replace(state, progress={name: value for name, value in (state.progress or {}).items() if name != NOT_FINITE})


def not_finite_step(progress: Mapping[str, Any] | None, generation: int) -> int | None:
    """The first step of this generation whose loss was not finite, as a job's `progress` has it."""
    known = (progress or {}).get(NOT_FINITE)
    return int(known["step"]) if known and known["generation"] == generation else None


def spoilt_since(progress: Mapping[str, Any] | None, generation: int, start_step: int) -> int | None:
    """The first step whose loss was not finite, of this generation, or of an earlier one whose spoilt state it began with at
    `start_step`."""
    known = (progress or {}).get(NOT_FINITE)
    if known and known["step"] <= start_step + 1:
        return int(known["step"])
    return not_finite_step(progress, generation)
