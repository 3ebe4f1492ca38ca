"""Curves on a terminal."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

ID = job()["id"]
PATH = f"/metrics/jobs/{ID}"


def curve(generation: int, *points: tuple[int, Any], name: str = "loss", rank: int = 0) -> dict[str, Any]:
    steps, values = [step for step, _ in points], [value for _, value in points]
    shared = {"minimum": values, "maximum": values, "last": values, "times": [0.0] * len(steps), "nan_count": [0] * len(steps)}
    return {"name": name, "unit": "", "rank": rank, "generation": generation, "bucket_steps": 1, "steps": steps, **shared}


def answered(coordinator: FakeCoordinator, *curves: dict[str, Any]) -> dict[str, Any]:
    document = {"job_id": ID, "first_step": 1, "last_step": 4, "names": ["loss"], "curves": list(curves), "as_of_seq": 9}
    coordinator.on("GET", PATH, Answer(200, document))
    return document


def test_a_curve_shows_what_counts_of_each_step(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """Generation 2 did step 3 again: what generation 1 had there does not count."""
    document = answered(coordinator, curve(1, (1, 8.0), (2, 4.0), (3, 99.0)), curve(2, (3, 2.0), (4, "NaN")))
    done = paceline("metrics", ID)
    assert done.returncode == 0, done.stderr
    header, row = done.stdout.splitlines()
    assert header.split() == ["METRIC", "STEP", "LAST", "LEAST", "MOST", "CURVE"]
    assert row.split() == ["loss", "4", "nan", "2", "8", "█▃▁×"]
    assert json.loads(paceline("metrics", ID, "--json").stdout) == document


def test_large_values_have_the_prefix_that_the_job_list_gives_them(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answered(coordinator, curve(1, (1, 1840.0), (2, 4_330_000.0), name="tokens_per_second"))
    _, row = paceline("metrics", ID).stdout.splitlines()
    assert "  4.33 M  1.84 k  4.33 M  " in row


def test_ranks_have_a_row_each(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answered(coordinator, curve(1, (1, 1.0), name="step_seconds"), curve(1, (1, 2.0), name="step_seconds", rank=3))
    done = paceline("metrics", ID, "--ranks", "0,3", "--names", "step_seconds", "--first-step", "1")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["METRIC", "RANK"], ["step_seconds", "0"], ["step_seconds", "3"]]
    assert coordinator.sent("GET", PATH)[0].query == {"names": "step_seconds", "ranks": "0,3", "first_step": "1"}


def test_a_job_without_curves_is_told_the_way_to_some(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", PATH, Answer(200, answered(coordinator) | {"names": []}))
    told = paceline("metrics", ID).stdout.strip()
    assert told.startswith("it has reported no metric; curves of a script come from paceline.log(step, loss=...), TensorBoard files")


def test_a_metric_that_is_not_there_names_those_that_are(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answered(coordinator)
    assert paceline("metrics", ID, "--names", "los").stdout.strip() == "no such points; it has reported loss"
