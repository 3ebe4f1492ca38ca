"""The steps at which trials of a halving pause, and refusals of those that make no rung."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.cluster.experiments.rungs import ladder, rung_steps
from paceline.cluster.experiments.spec import ExperimentSpec, Halving


@pytest.mark.parametrize(
    ("min_steps", "factor", "total", "expected"),
    [(9, 3, 81, (9, 27)), (9, 3, 80, (9,)), (10, 3, 100, (10, 30)), (1, 2, 2, (1,)), (40, 2, 81, (40,)), (1, 16, 16, (1,))],
)
def test_each_rung_has_factor_times_the_steps_and_so_has_the_end(
    min_steps: int, factor: int, total: int, expected: tuple[int, ...]
) -> None:
    assert ladder(Halving(min_steps=min_steps, factor=factor), total) == expected


def test_a_halving_without_a_rung_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"min_steps=28 leaves no rung .* of 81 steps: at factor=3 use min_steps=27 or less"):
        ladder(Halving(min_steps=28, factor=3), 81)
    with pytest.raises(ValueError, match=r"training.steps=2 is less than halving.factor=3: train longer"):
        ladder(Halving(min_steps=1, factor=3), 2)


@pytest.mark.parametrize("training", [{"epochs": 3}, {"steps": "81"}, {"steps": True}, {"steps": 80.5}, {}])
def test_a_job_without_a_number_of_steps_cannot_be_halved(training: dict[str, Any]) -> None:
    spec = ExperimentSpec(name="lr", job={"training": training}, halving=Halving(min_steps=9))
    with pytest.raises(ValueError, match=r"the job does not give training\.steps"):
        rung_steps(spec)
    assert rung_steps(spec.model_copy(update={"job": {"training": {"steps": 81.0}}})) == (9, 27, 81)
