"""Whether a loss falls more slowly by one way to sum gradients than by another, and when that is in doubt."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from paceline.parallelism.communication.loss_fall import loss_fall, slower_fall

STEPS = 32


def line(per_step: float, scatter: float = 0.0, seed: int = 0) -> Sequence[float]:
    draw = random.Random(seed)
    return [5.0 - per_step * step + draw.gauss(0.0, scatter) for step in range(STEPS)]


def test_the_fall_is_the_slope_and_its_doubt_what_the_losses_scatter_by() -> None:
    exact = loss_fall(line(0.01))
    assert (exact.per_step, exact.doubt) == (pytest.approx(0.01), pytest.approx(0.0, abs=1e-9))
    found = [loss_fall(line(0.01, 0.1, seed)) for seed in range(200)]
    assert sum(abs(each.per_step - 0.01) < 2 * each.doubt for each in found) > 180, "two standard errors hold 95 %"


def test_a_fall_that_is_clearly_slower_is_told_with_both_numbers() -> None:
    found = slower_fall(line(0.006), line(0.01), line(0.004))
    assert found is not None
    assert (found.per_step, found.by_default) == (pytest.approx(0.005), pytest.approx(0.01))


@pytest.mark.parametrize(
    ("before", "by_default", "after"),
    [
        (line(0.012), line(0.01), line(0.008)),  # a loss that falls less and less
        (line(0.0095), line(0.01), line(0.0085)),  # a tenth: less than it must save
        (line(0.005, 0.5, 1), line(0.01, 0.5, 2), line(0.005, 0.5, 3)),  # in doubt
        (line(-0.01), line(-0.005), line(-0.01)),  # it rises anyway
        (line(0.0), [*line(0.01)[:-1], math.nan], line(0.0)),
    ],
    ids=["flattens", "a tenth", "scatters", "rises", "not finite"],
)
def test_no_other_fall_is(before: Sequence[float], by_default: Sequence[float], after: Sequence[float]) -> None:
    assert slower_fall(before, by_default, after) is None
