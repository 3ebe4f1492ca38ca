"""A job's TensorBoard event files, made from its stored points when they are asked for, as one zip that streams.

Each step is in them once, from the generation whose work counts, whatever crashed or was done again. So nothing is kept on nodes, and
nothing has to be purged. One run folder for the job, one for each rank's own measurements:

    <job name>-<job id>/job/events.out.tfevents...
    <job name>-<job id>/rank0/events.out.tfevents...

    <job name>-<job id>/media/rank0/events.out.tfevents...    its images and histograms

Readings of a rank's own card (`card/power_watts`, ...) lie beside its own measurements: the mean over each step.
"""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import IO

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.history import card_curves, steps
from paceline.api.services.history.card_holdings import CardHolding
from paceline.api.services.history.media_event_files import MediaRecords
from paceline.api.services.history.steps import CountedStep
from paceline.cluster.history.lineage import Line
from paceline.cluster.history.node_readings import KeepReadings
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import step_records
from paceline.monitoring import tensorboard
from paceline.monitoring.points import RANK_METRICS, SAMPLE_METRICS
from paceline.monitoring.zip_stream import ZipStream

WRITER = "paceline"
#: Steps that are written at once, in a thread of their own.
BATCH_STEPS = 2_000

Scalars = Mapping[str, float]


@dataclass(frozen=True)
class EventFileRun:
    """One folder of event files: which of a rank's scalars it shows."""

    folder: str
    rank: int
    own: bool  # what the rank measured of itself; else what it told of the job

    def scalars(self, step: CountedStep) -> Scalars:
        return {name: float(value) for name, value in step.values.items() if self._shows(name)}

    def _shows(self, name: str) -> bool:
        if self.rank == 0:
            return name not in SAMPLE_METRICS and (name in RANK_METRICS) == self.own
        return name not in SAMPLE_METRICS


def runs_of(ranks: Sequence[int]) -> list[EventFileRun]:
    job = [EventFileRun("job", 0, own=False)] if 0 in ranks else []
    return [*job, *(EventFileRun(f"rank{rank}", rank, own=True) for rank in ranks)]


def folder_of(job: JobRow) -> str:
    return f"{job.name}-{job.id}"


@dataclass(frozen=True)
class CardHistory:
    """Where the readings of the ranks' cards are found. `now` in seconds since the epoch."""

    holdings: Sequence[CardHolding]
    now: float
    keep: KeepReadings

    async def scalars(self, points: AsyncSession, run: EventFileRun, batch: Sequence[CountedStep]) -> list[Scalars]:
        """The card's scalars of each step; none in the job's own folder."""
        held = [each for each in self.holdings if each.rank == run.rank and each.card is not None]
        if not run.own or not held:
            return [{}] * len(batch)
        steps, times = [step.step for step in batch], [step.time for step in batch]
        means = await card_curves.means_of_steps(points, held, steps, times, self.now, self.keep)
        return [{f"card/{name}": value for name, value in each.items()} for each in means]


async def stream(
    points: AsyncSession, job: JobRow, lines: Sequence[Line], cards: CardHistory, first_step: int = 0, media: MediaRecords | None = None
) -> AsyncIterator[bytes]:
    """The zip in pieces. No transaction stays open while a slow client reads."""
    sink = ZipStream()
    with zipfile.ZipFile(sink, "w") as archive:
        for run in runs_of(await step_records.ranks(points, job.id)):
            with _entry(archive, job, run.folder) as entry:
                async for batch in _batches(steps.counted_steps(points, job.id, lines, first_step, rank=run.rank)):
                    readings = await cards.scalars(points, run, batch)
                    await asyncio.to_thread(_write, entry, run, batch, readings)
                    await points.rollback()
                    yield sink.take()
        if media is not None:
            for rank in media.ranks:
                with _entry(archive, job, f"media/rank{rank}") as entry:
                    async for record in media.of_rank(rank, first_step):
                        await asyncio.to_thread(entry.write, record)
                        yield sink.take()
    yield sink.take()


@contextmanager
def _entry(archive: zipfile.ZipFile, job: JobRow, folder: str) -> Iterator[IO[bytes]]:
    """The name of a file in the zip, the same each time, so that files of a later download replace the earlier ones."""
    began = job.created_at.timestamp()
    name = f"{folder_of(job)}/{folder}/{tensorboard.file_name(began, WRITER)}"
    with archive.open(_zip_info(name, job.created_at), "w", force_zip64=True) as entry:
        entry.write(tensorboard.header(began))
        yield entry


def _zip_info(name: str, moment: datetime) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=moment.timetuple()[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _write(entry: IO[bytes], run: EventFileRun, batch: Sequence[CountedStep], readings: Sequence[Scalars]) -> None:
    for step, of_card in zip(batch, readings, strict=True):
        scalars = {**run.scalars(step), **of_card}
        if scalars:
            entry.write(tensorboard.scalars(step.step, step.time, scalars))


async def _batches(found: AsyncIterator[CountedStep]) -> AsyncIterator[list[CountedStep]]:
    batch: list[CountedStep] = []
    async for step in found:
        batch.append(step)
        if len(batch) == BATCH_STEPS:
            yield batch
            batch = []
    if batch:
        yield batch
