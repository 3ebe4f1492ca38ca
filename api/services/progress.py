"""Keeps each job's `progress` near rank 0's newest record: collected in memory, written at most five times a second.

The `progress` column is shared: this owns step, loss, rates, ETA and updated_at, and leaves every other key as it finds it.
Losing a pending write costs nothing, the next record brings it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.services import events
from api.services.background import in_background
from api.services.identity import SYSTEM
from api.services.screening import refusal
from db.errors import DatabaseError
from db.repositories import progress as repository
from monitoring.points import MetricRecord, RankBatch

logger = logging.getLogger(__name__)
MINIMUM_SECONDS_BETWEEN_WRITES = 0.2
SPEED_WINDOW_STEPS = 50
LOSS = "loss"
NOT_FINITE = "job.loss_not_finite"
_CARRIED = (LOSS, "tokens_per_second", "samples_per_second", "mfu")


@dataclass
class JobTrack:
    """What rank 0 of the newest generation said lately."""

    generation: int
    steps: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=SPEED_WINDOW_STEPS))
    values: dict[str, float] = field(default_factory=dict)
    #: The earliest report that this process has heard of: its step, and its time in seconds since the epoch. Until it is written.
    earliest: tuple[int, float] | None = None
    #: The first step whose loss was NaN or infinite; None: there was none.
    not_finite_step: int | None = None

    def add(self, record: MetricRecord) -> None:
        if self.steps and record.step <= self.steps[-1][0]:
            return
        self.steps.append((record.step, record.time))
        self.values.update({name: float(record.values[name]) for name in _CARRIED if name in record.values})

    def document(self, total_steps: int | None) -> dict[str, Any]:
        step, time = self.steps[-1]
        return {
            "step": step,
            **({} if total_steps is None else {"total_steps": total_steps}),
            **self.values,
            "eta_seconds": self.eta(total_steps),
            **({} if self.not_finite_step is None else {"not_finite": {"step": self.not_finite_step, "generation": self.generation}}),
            "updated_at": datetime.fromtimestamp(time, UTC).isoformat(),
        }

    def eta(self, total_steps: int | None) -> float | None:
        """Seconds left at the speed of the last steps; None while that is unknown."""
        (first, began), (last, ended) = self.steps[0], self.steps[-1]
        if total_steps is None or last == first or ended <= began:
            return None
        return max(0, total_steps - last) * (ended - began) / (last - first)


@dataclass
class ProgressKeeper:
    services: Services
    _tracks: dict[str, JobTrack] = field(default_factory=dict)
    _dirty: set[str] = field(default_factory=set)
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _flushing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def note(self, batch: RankBatch) -> None:
        """Remember what this batch says about its job. Late news of an older generation says nothing."""
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
        if track.not_finite_step is None:
            track.not_finite_step = first_not_finite(records)
        self._dirty.add(batch.job_id)
        self._work.set()

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("job-progress", self._run)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            try:
                await self.flush()
            except (SQLAlchemyError, DatabaseError) as error:
                logger.warning("progress was not written, the next record tries again: %s", error)
            await asyncio.sleep(MINIMUM_SECONDS_BETWEEN_WRITES)

    async def flush(self) -> None:
        """Write what is pending, all jobs in one transaction. On failure it stays pending."""
        async with self._flushing:
            self._work.clear()
            dirty, self._dirty = self._dirty, set()
            if not dirty:
                return
            try:
                await self._write(dirty)
            except BaseException:
                self._dirty |= dirty
                self._work.set()
                raise

    async def _write(self, job_ids: set[str]) -> None:
        """A job whose progress cannot be written holds up no other."""
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
        async with self.services.write() as session:
            for job_id, state in (await repository.load(session, job_ids)).items():
                track = self._tracks.get(job_id)
                if track is None:
                    continue
                if state.still_counts(track.generation, track.steps[-1][0]):
                    progress = _merged(state.progress, track.document(state.total_steps))
                    await repository.save(session, job_id, progress)
                    await _tell_if_not_finite(session, job_id, track, state.progress)
                if track.earliest is not None:
                    step, time = track.earliest
                    first = min(datetime.fromtimestamp(time, UTC), self.services.now())
                    await repository.note_first_step(session, job_id, track.generation, step, first)
                    track.earliest = None
                if state.ended:
                    del self._tracks[job_id]


async def _tell_if_not_finite(session: AsyncSession, job_id: str, track: JobTrack, before: Mapping[str, Any] | None) -> None:
    """Once for each generation, as it begins."""
    step = track.not_finite_step
    if step is None or not_finite_step(before, track.generation) is not None:
        return
    await events.record(
        session,
        type=NOT_FINITE,
        actor=SYSTEM,
        cause="loss",
        message=f"the loss of step {step} is not finite: what is trained from there on is of no use. Checkpoints of steps before it are kept",
        job_id=job_id,
        generation=track.generation,
        data={"step": step},
    )


def not_finite_step(progress: Mapping[str, Any] | None, generation: int) -> int | None:
    """The first step of this generation whose loss was not finite, as a job's `progress` has it."""
    known = (progress or {}).get("not_finite")
    return int(known["step"]) if known and known["generation"] == generation else None


def first_not_finite(records: Sequence[MetricRecord]) -> int | None:
    """The first step whose loss is NaN or infinite; on JSON these are strings."""
    found = (record.step for record in records if not math.isfinite(float(record.values.get(LOSS, 0.0))))
    return next(found, None)


def _merged(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    return {**(old or {}), **new}
