"""A trial's speed is that of its experiment's report, whichever of the two read it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

import pytest

from paceline.api.services.experiments import step_columns
from paceline.api.services.experiments.trial_speed import speed_of
from paceline.cluster.history.lineage import Line
from paceline.db.repositories.trial_records import LeaderRecords
from paceline.monitoring.points import STEP_PARTS


def records(*values: Mapping[str, float | str]) -> LeaderRecords:
    steps = range(1, len(values) + 1)
    return LeaderRecords(
        ["a"] * len(values), [1] * len(values), list(steps), list(map(float, steps)), [json.dumps(each) for each in values]
    )


def test_it_is_what_the_report_says() -> None:
    draws = random.Random(1)
    parts = dict.fromkeys(STEP_PARTS, 0.1)
    steps = records(*({"step_seconds": draws.uniform(0.1, 0.2), "samples": 32.0, **parts} for _ in range(80)))
    told = LeaderRecords(
        [*steps.job_ids, "a"], [*steps.generations, 1], [*steps.steps, 80], [*steps.times, 80.0], [*steps.values, '{"eval_loss":0.5}']
    )
    counted = step_columns.counted(step_columns.parse_records(told)["a"], [Line(1, 1, 80)])
    assert speed_of(told) == pytest.approx(step_columns.figures_of(step_columns.steady(counted, 1)).samples_per_second)


def test_a_script_that_tells_its_rate_alone_is_believed() -> None:
    rates = [1.0, 10.0, 12.0, 11.0, 30.0]
    assert speed_of(records(*({"step_seconds": 1.0, "samples_per_second": rate} for rate in rates))) == 11.5


def test_steps_that_are_not_finite_or_were_told_by_nobody_have_no_speed() -> None:
    assert speed_of(records({"step_seconds": "NaN", "samples": 8.0}, {"loss": 1.0})) is None
    assert speed_of(LeaderRecords()) is None
