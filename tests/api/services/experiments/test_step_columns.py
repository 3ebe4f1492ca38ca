from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from paceline.api.services.experiments import step_columns
from paceline.api.services.experiments.step_columns import StepColumns
from paceline.cluster.history.lineage import Line
from paceline.db.repositories.metric_columns import StoredBucket
from paceline.db.repositories.trial_records import LeaderRecords
from paceline.monitoring.points import STEP_PARTS
from paceline.monitoring.rollup import all_levels

PARTS = dict(zip(STEP_PARTS, (0.01, 0.02, 0.04, 0.02, 0.005, 0.005), strict=True))


def record(step: int, *, generation: int = 1, time: float | None = None, job: str = "a", **values: Any) -> tuple[str, int, int, float, str]:
    told = {"step_seconds": 0.1, "loss": 1 / step, "first_sample": 8.0 * (step - 1), "samples": 8.0, **PARTS} | values
    return job, generation, step, float(step) if time is None else time, json.dumps(told)


def parsed(rows: Sequence[tuple[str, int, int, float, str]]) -> dict[str, StepColumns]:
    return step_columns.parse_records(LeaderRecords(*zip(*rows, strict=True)))


def test_records_become_columns_by_job() -> None:
    found = parsed([record(1), record(2, loss="NaN", step_seconds="Infinity"), record(1, job="b", eval_loss=3.0)])
    assert {job: each.steps.tolist() for job, each in found.items()} == {"a": [1, 2], "b": [1]}
    assert np.isnan(found["a"].column("loss")[1])
    assert step_columns.parse_records(LeaderRecords()) == {}


def test_steps_count_once_and_only_where_their_generation_does() -> None:
    rows = [
        record(1),
        record(2),
        ("a", 1, 2, 2.0, json.dumps({"eval_loss": 0.5})),
        record(3, loss=9.0),
        record(3, generation=2),
        record(4, generation=2, step_seconds=-1.0),
        record(5, generation=2, step_seconds=0.2),
        record(5, generation=2, step_seconds=0.3),
    ]
    found = step_columns.counted(parsed(rows)["a"], [Line(1, 1, 2), Line(2, 3, 5)])
    assert found.steps.tolist() == [1, 2, 3, 5]
    assert found.column("loss").tolist() == [1, 1 / 2, 1 / 3, 1 / 5], "the step that was lost does not count"
    assert found.column("step_seconds")[-1] == 0.3, "what was told last stands"


def test_the_first_steps_warm_up() -> None:
    found = parsed([record(step) for step in range(1, 101)])["a"]
    assert step_columns.steady(found, 1).steps[0] == 11
    assert step_columns.steady(found.at(found.steps <= 10), 1).steps[0] == 3, "of a short trial a fifth"
    assert step_columns.steady(found.at(found.steps > 500), 1).steps.tolist() == []


def test_figures_are_of_typical_steps() -> None:
    slow = dict.fromkeys((20, 40), 3.0)
    found = parsed([record(step, step_seconds=slow.get(step, 0.1), data_seconds=2.9 if step in slow else 0.01) for step in range(1, 61)])[
        "a"
    ]
    figures = step_columns.figures_of(found)
    assert figures.step_seconds == 0.1
    assert figures.samples_per_second == pytest.approx(80)
    assert figures.parts == pytest.approx({name.removesuffix("_seconds"): share for name, share in PARTS.items()}), (
        "two slow steps change no part"
    )
    assert sum(figures.parts.values()) == pytest.approx(0.1)
    assert figures.exposed_communication == pytest.approx(0.2)
    assert figures.bubble is None


def test_parts_without_a_known_communication_add_up_and_leave_it_open() -> None:
    found = parsed([record(step, communication_seconds=None, backward_seconds=0.06) for step in range(1, 11)])["a"]
    figures = step_columns.figures_of(found)
    assert figures.exposed_communication is None
    assert sum(figures.parts.values()) == pytest.approx(0.1)
    assert figures.parts.keys() == {"data", "forward", "backward", "optimizer", "other"}


def test_a_script_that_tells_little_has_what_it_tells() -> None:
    rows = [("a", 1, step, float(step), json.dumps({"step_seconds": 0.5, "loss": 2.0})) for step in range(1, 11)]
    found = parsed(rows)["a"]
    figures = step_columns.figures_of(found)
    assert (figures.step_seconds, figures.samples_per_second, figures.parts, figures.exposed_communication) == (0.5, None, {}, None)
    series = step_columns.series_of(found, 1)
    assert (list(series.samples), len(series.losses), len(series.times)) == ([], 10, 10)


def test_a_series_counts_samples_and_training_time_without_pauses() -> None:
    rows = [record(step, time=step * 0.1) for step in (1, 2, 3)] + [record(step, generation=2, time=1000 + step * 0.1) for step in (4, 5)]
    found = parsed(rows)["a"]
    series = step_columns.series_of(found, 1)
    assert list(series.samples) == [8, 16, 24, 32, 40]
    assert list(series.times) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_a_sample_of_steps_has_the_times_of_all_of_them() -> None:
    every = parsed([record(step, time=step * 0.1) for step in range(1, 101)])["a"]
    some = every.at(every.steps % 10 == 0)
    assert list(step_columns.series_of(some, 1).times) == pytest.approx([step * 0.1 for step in range(10, 101, 10)])


def test_roll_ups_stand_for_points_that_are_gone() -> None:
    values = {
        "step_seconds": lambda step: 0.1,
        "loss": lambda step: 1 / step,
        "samples": lambda step: 8.0,
        "first_sample": lambda step: 8.0 * (step - 1),
    }
    stored = [
        StoredBucket(name, 0, 1, number, bucket)
        for name, value in values.items()
        for number, bucket in all_levels((step, step * 0.1, value(step)) for step in range(1, 101))[10].items()
    ]
    found = step_columns.of_buckets(stored)
    assert found.steps.tolist() == [9, 19, 29, 39, 49, 59, 69, 79, 89, 99, 100]
    assert step_columns.series_of(found, 1).samples[-1] == 800
    assert step_columns.figures_of(found).step_seconds == pytest.approx(0.1)
    assert step_columns.of_buckets([]).steps.tolist() == []
