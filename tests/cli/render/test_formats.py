"""Numbers of tables: none that is there is shown as nothing."""

from __future__ import annotations

import pytest

from paceline.cli.render import formats


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.2861, "2.286"),
        (0.0123, "0.012"),
        (0.0, "0.000"),
        (0.00086479, "0.000865"),
        (3.69e-5, "3.69e-05"),
        (-0.0004, "-0.0004"),
        ("NaN", "NaN"),
    ],
)
def test_a_small_loss_is_not_shown_as_zero(value: float | str, shown: str) -> None:
    assert formats.number(value) == shown


def test_a_rate_that_a_model_does_not_have_is_left_out() -> None:
    assert formats.throughput(1650.0, 12.9) == "1.65 k tokens/s, 12.9 samples/s"
    assert formats.throughput(None, 688.0) == "688 samples/s"
    assert formats.throughput(None, None) == "-"
