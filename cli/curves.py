"""A job's curves as points: put together over generations, and followed while the job trains.

As with a log (`follow.py`), REST is the truth and the stream only ends a wait early: a lost connection costs latency, never a point.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from paceline.cli.answers import parsed
from paceline.cli.api_types import Curve, Job, JobMetrics
from paceline.cli.job_facts import has_ended
from paceline.cli.waiting import patient

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

Point = tuple[int, float]
Series = tuple[str, int]


class MetricPoint(NamedTuple):
    """One value of a metric as one rank measured it. Where a curve has more points than are sent, that of the last step in its bucket."""

    name: str
    rank: int
    generation: int
    step: int
    time: float  # seconds since the epoch
    value: float


def points_of(curves: Iterable[Curve]) -> list[Point]:
    """Return the curve of one metric and rank as (step, value): what a later generation did again replaces what an earlier one did."""
    points: list[Point] = []
    for curve in sorted(curves, key=lambda curve: curve.generation):
        if curve.steps:
            points = [point for point in points if point[0] < curve.steps[0]]
            points += zip(curve.steps, map(float, curve.last), strict=True)
    return points


def follow_metrics(client: RestClient, job_id: str, names: str | None, ranks: str, first_step: int) -> Iterator[MetricPoint]:
    """Yield every point from `first_step` on, in order of generations and steps, and each once, until the job has ended. Steps that a later
    generation does again come again where they differ."""
    from paceline.cli.follow import StreamNews

    newest: dict[Series, tuple[int, int]] = {}  # by series, its last generation and step
    generation, first = 0, first_step
    with contextlib.closing(StreamNews(client, f"/metrics/stream/{job_id}")) as news:
        while True:
            job = patient(functools.partial(client.job, job_id))  # before the points: whatever it had reported when it ended is in them
            if job.generation != generation:
                generation, first = job.generation, min(first, max(first_step, _begins(job)))
            document = patient(functools.partial(client.get, f"/metrics/jobs/{job_id}", names=names, ranks=ranks, first_step=first))
            metrics = parsed(document, JobMetrics)
            new = [point for point in _points(metrics) if (point.generation, point.step) > newest.get((point.name, point.rank), (0, -1))]
            for point in new:
                newest[point.name, point.rank] = (point.generation, point.step)
                yield point
            first = max(first, min((step for told, step in newest.values() if told == generation), default=first))
            if has_ended(job):
                return
            news.wait(metrics.as_of_seq)


def _begins(job: Job) -> int:
    """Return the first step that the newest generation may report; 0 for the first one, and where the step it goes on from is unknown."""
    return (job.generations[-1].start_step or 0) if len(job.generations) > 1 else 0


def _points(metrics: JobMetrics) -> list[MetricPoint]:
    points = [
        MetricPoint(curve.name, curve.rank, curve.generation, step, time, float(value))
        for curve in metrics.curves
        for step, time, value in zip(curve.steps, curve.times, curve.last, strict=True)
    ]
    return sorted(points, key=lambda point: (point.generation, point.step, point.name, point.rank))
