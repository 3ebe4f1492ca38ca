"""The reports of rank 0 as columns, and the figures of a job's steady part. Pure.

A step counts where its generation's work does (`cluster/history/lineage.py`). The first steps are left out of all figures: they compile, allocate and
fill caches. Of the rest the *typical* steps are those with a time between the quartiles; a step's parts are theirs, scaled to the median.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import msgspec
import numpy as np
from numpy.typing import NDArray

from paceline.api.services.history.steps import MOST_SECONDS, STEP_SECONDS
from paceline.cluster.experiments.facts import StepSeries
from paceline.cluster.experiments.warm_up import first_steady_step
from paceline.cluster.history.lineage import Line
from paceline.db.repositories.metric_columns import StoredBucket
from paceline.db.repositories.trial_records import LeaderRecords
from paceline.monitoring.points import STEP_PARTS

LOSS, FIRST_SAMPLE, SAMPLES, RATE, TOKENS, BUBBLE = (
    "loss",
    "first_sample",
    "samples",
    "samples_per_second",
    "tokens_per_second",
    "pipeline_bubble",
)
#: What is read of the records of rank 0, in the order of the columns.
NAMES = (STEP_SECONDS, *STEP_PARTS, LOSS, FIRST_SAMPLE, SAMPLES, RATE, TOKENS, BUBBLE)
COMMUNICATION = "communication_seconds"

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class StepColumns:
    """Some of a job's steps; the columns are equally long, and have NaN where a step has no such value."""

    generations: Whole
    steps: Whole
    times: Numbers  # of the ends, seconds since the epoch
    values: Numbers  # a row for each step, a column for each of NAMES

    def column(self, name: str) -> Numbers:
        found: Numbers = self.values[:, NAMES.index(name)]
        return found

    def at(self, chosen: NDArray[np.bool_]) -> StepColumns:
        """The steps for which this mask is true."""
        return StepColumns(self.generations[chosen], self.steps[chosen], self.times[chosen], self.values[chosen])


@dataclass(frozen=True)
class SteadyFigures:
    """Figures of a job's steady steps; None where it is not told."""

    step_seconds: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    exposed_communication: float | None = None
    bubble: float | None = None


# --- reading


@functools.cache
def _decoder() -> msgspec.json.Decoder[msgspec.Struct]:
    """A decoder of the named values alone: it passes over everything else without making objects of it."""
    fields = [(f"value_{at}", float | str | None, None) for at in range(len(NAMES))]
    rename = {f"value_{at}": name for at, name in enumerate(NAMES)}
    return msgspec.json.Decoder(msgspec.defstruct("StepValues", fields, rename=rename))


def parse_records(records: LeaderRecords) -> dict[str, StepColumns]:
    """The records by job."""
    decode, as_tuple = _decoder().decode, msgspec.structs.astuple
    values = np.array([as_tuple(decode(text)) for text in records.values], dtype=np.float64).reshape(-1, len(NAMES))
    generations, steps = np.array(records.generations, np.int64), np.array(records.steps, np.int64)
    times = np.array(records.times, np.float64)
    found: dict[str, StepColumns] = {}
    first = 0
    for job_id, group in groupby(records.job_ids):
        mine = slice(first, first + sum(1 for _ in group))
        found[job_id] = StepColumns(generations[mine], steps[mine], times[mine], values[mine])
        first = mine.stop
    return found


def of_buckets(buckets: Sequence[StoredBucket]) -> StepColumns:
    """The means of roll-ups as if each bucket were its last step: for steps whose points are no longer kept."""
    rows: dict[tuple[int, int], tuple[float, list[float]]] = {}
    for each in buckets:
        told = each.bucket.count - each.bucket.nan_count
        if each.name in NAMES and told:
            _, values = rows.setdefault((each.generation, each.bucket.last_step), (each.bucket.last_time, [np.nan] * len(NAMES)))
            exact = each.name in (FIRST_SAMPLE, SAMPLES) and each.bucket.last is not None
            values[NAMES.index(each.name)] = each.bucket.last if exact and each.bucket.last is not None else each.bucket.sum / told
    ordered = sorted(rows, key=lambda key: (key[1], key[0]))
    return StepColumns(
        np.array([generation for generation, _ in ordered], np.int64),
        np.array([step for _, step in ordered], np.int64),
        np.array([rows[key][0] for key in ordered], np.float64),
        np.array([rows[key][1] for key in ordered], np.float64).reshape(len(ordered), len(NAMES)),
    )


def counted(columns: StepColumns, lines: Sequence[Line]) -> StepColumns:
    """The steps that count, each once, as the generation that did them told of them."""
    seconds = columns.column(STEP_SECONDS)
    own = (seconds >= 0) & (seconds <= MOST_SECONDS)
    inside = np.zeros(len(own), np.bool_)
    for line in lines:
        inside |= (columns.generations == line.generation) & (columns.steps >= line.first) & (columns.steps <= line.last)
    chosen = columns.at(own & inside)
    is_last = np.ones(len(chosen.steps), np.bool_)
    is_last[:-1] = chosen.steps[1:] != chosen.steps[:-1]
    return chosen.at(is_last)


# --- figures


def steady(columns: StepColumns, first_step: int) -> StepColumns:
    """The steps without those that warm up. `first_step`: of the job; `columns` may be a sample of its steps."""
    if not len(columns.steps):
        return columns
    return columns.at(columns.steps >= first_steady_step(first_step, int(columns.steps[-1])))


def figures_of(columns: StepColumns) -> SteadyFigures:
    """The figures of these steps, which all count."""
    seconds = columns.column(STEP_SECONDS)
    if not len(seconds):
        return SteadyFigures()
    ordered = np.sort(seconds)
    last = len(ordered) - 1
    typical = columns.at((seconds >= ordered[last // 4]) & (seconds <= ordered[last - last // 4]))
    middle = _middle(seconds)
    batch = _median(typical.column(SAMPLES))
    rate = batch / middle if batch and middle else _median(typical.column(RATE))
    parts = parts_of(typical, middle)
    whole = sum(parts.values())
    return SteadyFigures(
        step_seconds=middle,
        samples_per_second=rate,
        tokens_per_second=_median(typical.column(TOKENS)),
        parts=parts,
        exposed_communication=parts["communication"] / whole if whole > 0 and "communication" in parts else None,
        bubble=_median(typical.column(BUBBLE)),
    )


def parts_of(typical: StepColumns, step_seconds: float) -> dict[str, float]:
    """The parts of a step by name, without their unit; they add up to `step_seconds`. Empty: they were not told. Without communication: it is not known."""
    known = not np.isnan(typical.column(COMMUNICATION)).all()
    names = [part for part in STEP_PARTS if known or part != COMMUNICATION]
    block = typical.values[:, [NAMES.index(name) for name in names]]
    sums = block[~np.isnan(block).any(axis=1)].sum(axis=0)
    total = float(sums.sum())
    if not (total > 0 and np.isfinite(total)):
        return {}
    return {name.removesuffix("_seconds"): float(amount) / total * step_seconds for name, amount in zip(names, sums, strict=True)}


def series_of(columns: StepColumns, first_step: int) -> StepSeries:
    """The steps as a series. Where samples are not told, their column is empty. `first_step`: of the job; `columns` may be a sample of its steps."""
    seconds = columns.column(STEP_SECONDS)
    samples = columns.column(FIRST_SAMPLE) + columns.column(SAMPLES)
    known = len(samples) > 0 and bool(np.isfinite(samples).all())
    return StepSeries(
        steps=columns.steps.tolist(),
        seconds=seconds.tolist(),
        losses=columns.column(LOSS).tolist(),
        samples=samples.astype(np.int64).tolist() if known else [],
        times=training_times(columns, first_step).tolist(),
    )


def training_times(columns: StepColumns, first_step: int) -> Numbers:
    """Seconds of training at the end of each step. Before the first of these steps, and from the last step of a generation to the first of the next one, as many steps of the median time
    are counted as lie between: what else passed was no training."""
    seconds = columns.column(STEP_SECONDS)
    if not len(seconds):
        return seconds
    gaps = np.diff(columns.times)
    changed = columns.generations[1:] != columns.generations[:-1]
    middle = _middle(seconds)
    gaps = np.where(changed | (gaps < 0), middle * np.diff(columns.steps), gaps)
    began = float(seconds[0]) + middle * (int(columns.steps[0]) - first_step)
    return began + np.concatenate(([0.0], np.cumsum(gaps)))


def _median(values: Numbers) -> float | None:
    """The median of the finite values; None: there are none."""
    finite = values[np.isfinite(values)]
    return _middle(finite) if len(finite) else None


def _middle(values: Numbers) -> float:
    """The median, several times as fast as `np.median` on short columns."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1] + ordered[half]) / 2
