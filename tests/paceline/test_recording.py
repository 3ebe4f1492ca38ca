"""What other libraries log, brought into metrics of Paceline's."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.recording import ForeignMetrics, flat


def shown(capsys: pytest.CaptureFixture[str], *logged: dict[Any, Any]) -> list[str]:
    metrics = ForeignMetrics()
    for step, values in enumerate(logged):
        metrics.record(step, values)
    return capsys.readouterr().out.splitlines()


def test_a_name_that_is_ours_wins_over_one_that_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    logged = {"train/loss": 1.0, "loss": 2.0}
    assert shown(capsys, logged, logged) == [f"step {step} loss 2 train/loss 1" for step in (0, 1)]


def test_a_text_does_not_take_the_name_of_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {"train/loss": "low", "loss/train": 0.5}) == ["step 0 loss 0.5"]


def test_nothing_is_recorded_where_there_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {"note": "text"}, {}) == []


def test_values_that_are_not_finite_are_numbers_and_names_of_the_audit_are_set_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {"loss": math.nan, "samples": 3, 7: True}) == ["step 0 loss nan own/samples 3 7 1"]


def test_names_that_no_metric_can_have_are_left_out_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = ForeignMetrics()
    for step in range(3):
        metrics.record(step, {"x" * 300: 1.0, "": 2.0, "kept": 3.0})
    output = capsys.readouterr()
    assert output.out.splitlines() == [f"step {step} kept 3" for step in range(3)]
    assert output.err.count("WARNING metrics are dropped: their names are empty or too long") == 1


def test_nested_names_are_joined_by_slashes() -> None:
    assert dict(flat({"a": {"b": {"c": 1}, "d": 2}, "e": 3})) == {"a/b/c": 1, "a/d": 2, "e": 3}
