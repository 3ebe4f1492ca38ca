"""What a training script may hand to `paceline.log`, and what it is told where it may not."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from paceline.monitoring.checks import checked_step, checked_value, checked_values
from paceline.monitoring.points import MAX_NAME_CHARACTERS, MAX_STEP


@pytest.mark.parametrize("step", [7, np.int64(7), np.uint8(7), np.array(7), torch.tensor(7)])
def test_an_integer_of_any_library_is_a_step(step: Any) -> None:
    found = checked_step(step)
    assert (found, type(found)) == (7, int)


@pytest.mark.parametrize(
    "step",
    [0.5, 7.0, "7", True, np.True_, torch.tensor(True), np.float64(7), torch.tensor(7.0), None, [7], pytest.param("x" * 10_000, id="long")],
)
def test_a_step_that_is_no_integer_is_refused_in_the_callers_line(step: Any) -> None:
    with pytest.raises(TypeError, match=r"^step .* is not an integer: pass a whole number") as refused:
        checked_step(step)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("step", [-1, MAX_STEP + 1, 2**63, 2**64, pytest.param(10**5_000, id="huge"), np.int64(-3)])
def test_a_step_out_of_range_is_refused_in_the_callers_line(step: Any) -> None:
    with pytest.raises(ValueError, match=r"^step .* is not between 0 and 9007199254740991") as refused:
        checked_step(step)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "value",
    [2, 2.0, np.float32(2), np.int8(2), np.array([2.0]), torch.tensor(2), torch.tensor(2.0, requires_grad=True), Fraction(2), Decimal(2)],
)
def test_a_single_number_of_any_library_is_a_value(value: Any) -> None:
    found = checked_value("loss", value)
    assert (found, type(found)) == (2.0, float)


def test_nan_and_the_infinities_are_values() -> None:
    values = checked_values({"a": math.nan, "b": math.inf, "c": torch.tensor(-math.inf), "d": True}, set())
    assert math.isnan(values.pop("a"))
    assert values == {"b": math.inf, "c": -math.inf, "d": 1.0}


@pytest.mark.parametrize(
    "value", ["2", b"2", None, [2.0], {}, 2j, np.array([1.0, 2.0]), torch.ones(3), torch.ones(2, device="meta"), object()]
)
def test_what_is_no_number_is_refused_by_the_metrics_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^metric loss: .* is not one real number"):
        checked_value("loss", value)


def test_an_integer_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^metric loss: an integer of 16610 bits does not fit into a float"):
        checked_value("loss", 10**5_000)


@pytest.mark.parametrize("name", ["", " ", "loss ", "a\0b", "a\nb", "\ud800", "\u202eloss", "x" * (MAX_NAME_CHARACTERS + 1)])
def test_a_name_that_nobody_could_read_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^metric name "):
        checked_values({name: 1.0}, set())


@pytest.mark.parametrize("name", ["loss", "Loss/train 1", "é" * MAX_NAME_CHARACTERS, "a,b", "<b>"])
def test_a_printable_name_is_taken(name: str) -> None:
    known: set[str] = set()
    assert checked_values({name: 1.0}, known) == {name: 1.0}
    assert known == {name}
