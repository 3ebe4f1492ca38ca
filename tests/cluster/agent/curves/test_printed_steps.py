"""Steps of a whole run out of what lines say: they go on, they begin anew in each epoch, or there are only epochs."""

from __future__ import annotations

import pytest

from paceline.cluster.agent.curves.printed import read_line
from paceline.cluster.agent.curves.printed_steps import GoesBackError, StepCounter


def counted(*lines: str) -> list[int | None]:
    counter = StepCounter()
    found = [read_line(f"{line} loss 0.5") for line in lines]
    return [counter.step_of(each) for each in found if each is not None]


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        (["step 1", "step 2", "step 2", "step 9"], [1, 2, 2, 9]),
        (["Epoch 1 Step 8", "Epoch 1 Step 9", "Epoch 2 Step 10"], [8, 9, 10]),
        (["Epoch 1 Step 8/40", "Epoch 2 Step 10/40"], [8, 10]),  # of the whole run
        (["Epoch 1 Step 9", "Epoch 1 Step 10", "Epoch 2 Step 10", "Epoch 2 Step 11"], [9, 10, 10, 11]),  # a summary between
        (["Epoch [1/3], Step [4/8]", "Epoch [1/3], Step [8/8]", "Epoch [2/3], Step [4/8]", "Epoch [3/3], Step [8/8]"], [4, 8, 12, 24]),
        (["Epoch 0, Step 0/8", "Epoch 0, Step 4/8", "Epoch 1, Step 0/8"], [0, 4, 8]),
        (["Epoch 0, Step 8/8", "Epoch 1, Step 8/8"], [8, 16]),
        (["Epoch 0 | Steps: 25 |", "Epoch 1 | Steps: 25 |", "Epoch 2 | Steps: 25 |"], [25, 50, 75]),
        (["Epoch 0", "Epoch 1", "Epoch 2"], [0, 1, 2]),
        (["Epoch 1 Step 4", "Epoch 1", "Epoch 2 Step 6"], [4, None, 6]),
        (["Epoch 1", "Epoch 2 Step 6", "Epoch 2"], [1, None, 2]),
    ],
)
def test_steps_of_a_run(lines: list[str], steps: list[int | None]) -> None:
    assert counted(*lines) == steps


@pytest.mark.parametrize(
    "lines",
    [
        ["step 2", "step 1"],
        ["Epoch 2", "Epoch 1"],
        ["Epoch 1 Step 8", "Epoch 1 Step 9", "Epoch 2 Step 1"],  # of how many?
        ["Epoch 7, Step 4/8", "Epoch 8, Step 1/8"],  # resumed: the first epoch may have been 0 or 1
        ["Epoch 1, Step 4/8", "Epoch 2, Step 1/8", "Epoch 3, Step 9/8"],
        ["Epoch 1, Step 4/8", "Epoch 2, Step 1/8", "Epoch 2, Step 1/4"],
    ],
)
def test_what_goes_back_is_no_curve(lines: list[str]) -> None:
    with pytest.raises(GoesBackError):
        counted(*lines)
