"""What counts as a failure that was told right."""

from __future__ import annotations

import pytest

from scripts.bench.culprits import ASKED, FAULTS, MUTUAL, NAN, ToldEnd, is_right


@pytest.mark.parametrize(
    ("fault", "end", "right"),
    [
        ("exception", ToldEnd(1), True),
        ("exception", ToldEnd(0), False),
        ("exception", ToldEnd(None), False),
        ("loop", ToldEnd(0, "hang"), False),
        ("order", ToldEnd(0), True),
        ("order", ToldEnd(None), False),
        (NAN, ToldEnd(0, "loss_not_finite"), True),
        (NAN, ToldEnd(1, "completed"), False),
    ],
)
def test_the_rank_that_fails_is_to_be_named(fault: str, end: ToldEnd, right: bool) -> None:
    """Here it is rank 1. Of two whose calls do not fit each other it may be either."""
    assert is_right(fault, 1, end) == right


def test_every_exception_to_the_rule_is_a_fault_that_is_tried() -> None:
    assert set(FAULTS) >= {*ASKED, *MUTUAL, NAN}
