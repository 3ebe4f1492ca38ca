"""The samples per second of a trial as its experiment's report has them, without numpy: the coordinator reads them whenever a trial has come further.

They are the median batch over the median time of a step, of the steps after those that warm up.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.experiments.metric_totals import MetricTotals
from paceline.api.services.experiments.strides import by_stride, steps_read
from paceline.api.services.history.steps import MOST_SECONDS, STEP_SECONDS
from paceline.cluster.experiments.warm_up import first_steady_step
from paceline.db.repositories import trial_records
from paceline.db.repositories.trial_records import LeaderRecords

#: Steps that are read of one trial; of longer ones, so many that lie evenly apart.
MOST_STEPS = 1_000


class TimedRecord(msgspec.Struct):
    """The values of a record of rank 0 that its speed takes; those that are not finite are texts."""

    step_seconds: float | str | None = None
    samples: float | str | None = None
    samples_per_second: float | str | None = None


_decode = msgspec.json.Decoder(TimedRecord).decode


async def read_speed(points: AsyncSession, job_id: str, totals: MetricTotals) -> float | None:
    """The samples per second of a job by now. `totals`: of its STEP_SECONDS at least."""
    for stride, jobs in by_stride({job_id: totals}, MOST_STEPS).items():
        return speed_of(await trial_records.of_leaders(points, jobs, steps_read(stride, totals.last_step(STEP_SECONDS))))
    return None


def speed_of(records: LeaderRecords) -> float | None:
    """The samples per second of one job whose first step is 1, from some of its records; None: they do not tell.

    Of a step that was done twice the record that came last counts; records without a time, such as those of evaluations, are of no step."""
    told = ((step, _decode(text)) for step, text in zip(records.steps, records.values, strict=True))
    by_step = {step: each for step, each in told if 0 <= _number(each.step_seconds) <= MOST_SECONDS}
    first = first_steady_step(1, max(by_step, default=0))
    steady = [each for step, each in by_step.items() if step >= first]
    seconds, batch = _median([each.step_seconds for each in steady]), _median([each.samples for each in steady])
    return batch / seconds if batch and seconds else _median([each.samples_per_second for each in steady])


def _median(values: Sequence[float | str | None]) -> float | None:
    """The median of the finite values; None: there are none."""
    finite = [number for value in values if math.isfinite(number := _number(value))]
    return statistics.median(finite) if finite else None


def _number(value: float | str | None) -> float:
    return value if isinstance(value, float) else math.nan
