from __future__ import annotations

import pytest

from paceline.cluster.experiments.analysis.configurations import axes, changes_learning, group
from tests.cluster.experiments.analysis.made_up import BATCH, RATE, STRATEGY, repeats, spec

TRIALS = [
    *repeats(0, {STRATEGY: "ddp", "world_size": 2, BATCH: 32}, [1.0, 3.0, 2.0]),
    *repeats(3, {STRATEGY: "fsdp", "world_size": 2, BATCH: 32}, [4.0], state="running"),
    *repeats(4, {STRATEGY: "tensor", "world_size": 2, BATCH: 32}, [1.0], state="refused", refusal="no"),
]


def test_trials_with_equal_values_are_one_configuration_in_the_order_of_the_grid() -> None:
    found = group(spec(), [*reversed(TRIALS)])
    assert [[trial.index for trial in each.trials] for each in found] == [[0, 1, 2], [3], [4]]
    assert [each.label for each in found] == ["ddp", "fsdp", "tensor"]
    assert [each.completed for each in found] == [3, 0, 0]
    assert found[0].figures["step_seconds"] == [1.0, 2.0, 3.0]


def test_a_refused_one_has_its_reason_and_no_figures() -> None:
    refused = group(spec(), TRIALS)[2]
    assert (refused.refusal, refused.measured, refused.figures["step_seconds"]) == ("no", [], [])


def test_axes_are_what_varies_in_the_order_of_the_spec() -> None:
    described = spec(grid={BATCH: [32], STRATEGY: ["ddp", "fsdp", "tensor"]})
    assert axes(described, TRIALS) == [STRATEGY]
    assert axes(described, [*TRIALS, *repeats(5, {BATCH: 64, RATE: 1, "world_size": 4}, [1.0])]) == [BATCH, STRATEGY, "world_size"]


@pytest.mark.parametrize(
    ("path", "learns"),
    [
        (RATE, True),
        ("model.dim", True),
        (BATCH, False),
        (STRATEGY, False),
        ("world_size", False),
        ("precision", False),
        ("training.steps", True),
    ],
)
def test_which_paths_change_what_is_learned(path: str, learns: bool) -> None:
    assert changes_learning(path) is learns
