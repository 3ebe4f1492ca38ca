"""The size of model above which a plan that saves memory is needed: told from measured peaks, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from paceline.cluster.experiments.analysis.analyze import analyze
from paceline.cluster.experiments.analysis.comparisons import pairs
from paceline.cluster.experiments.analysis.configurations import axes, group
from paceline.cluster.experiments.analysis.model_sizes import sentences
from paceline.cluster.experiments.analysis.predictor import FittedPredictor, MeasuredConfiguration, ModelState
from paceline.cluster.experiments.facts import TrialFacts
from tests.cluster.experiments.analysis.made_up import BATCH, STRATEGY, repeats, spec

GIGABYTE = 10**9
#: AdamW in fp32 keeps 16 bytes a parameter; in two shards half of that.
REPLICAS, SHARDS = (ModelState(10**8, each, "adamw", 24 * GIGABYTE) for each in (16.0, 8.0))


@dataclass
class Counted:
    states: Mapping[int, ModelState]  # by index of a trial

    def fit(self, measured: Sequence[MeasuredConfiguration]) -> FittedPredictor | None:
        return None

    def state(self, trial: int) -> ModelState | None:
        return self.states.get(trial)


def plan(first: int, strategy: str, peak: float | None, ranks: int = 2, batch: int = 32) -> list[TrialFacts]:
    return repeats(first, {STRATEGY: strategy, "world_size": ranks, BATCH: batch}, [1.0, 1.1], peak_memory_bytes=peak)


def told(trials: list[TrialFacts], states: Mapping[int, ModelState]) -> list[tuple[str, str]]:
    described = spec()
    compared = pairs(described, axes(described, trials), group(described, trials))
    return [(each.kind, each.text) for each in sentences(Counted(states), compared)]


def test_the_saving_plan_is_needed_where_the_other_ones_state_fills_what_the_measured_model_leaves() -> None:
    """By hand: of 24 GB nine tenths are 21.6 GB. Replicas took 2.4 GB with 100 M parameters, which leaves room for 1.2 B more at 16 bytes, and 1.3 B in
    all; shards took 1.6 GB, which leaves room for 2.5 B more at 8 bytes."""
    trials = [*plan(0, "ddp", 2.4 * GIGABYTE), *plan(2, "fsdp", 1.6 * GIGABYTE)]
    (found, assumed) = told(trials, {0: REPLICAS, 2: SHARDS})
    assert found == (
        "finding",
        "Predicted, not measured: take fsdp above 1.3 B parameters at the latest. On 2 ranks with 24 GB each, ddp holds no larger model, and fsdp "
        "none above 2.6 B.",
    )
    assert assumed == (
        "doubt",
        "Sizes of models assume that a rank keeps 16 bytes a parameter with ddp and 8 bytes a parameter with fsdp (the parameter, gradients with "
        "their partial sums, and the state of adamw), uses 90 % of its memory, and needs as much for all else as was measured with 100 M parameters. A larger model has "
        "larger activations, so less may fit.",
    )


def test_without_a_measured_peak_no_size_is_told_and_the_reason_is() -> None:
    trials = [*plan(0, "ddp", None), *plan(2, "fsdp", 1.6 * GIGABYTE)]
    assert told(trials, {0: REPLICAS, 2: SHARDS}) == [
        (
            "doubt",
            "From which size of model on fsdp is needed cannot be said: the peak of memory of ddp was not measured.",
        )
    ]


def test_of_the_same_two_plans_the_pair_with_the_most_ranks_is_told() -> None:
    trials = [
        *(each for at, ranks in enumerate((2, 8, 4)) for each in plan(10 * at, "ddp", GIGABYTE, ranks)),
        *(each for at, ranks in enumerate((2, 8, 4)) for each in plan(10 * at + 5, "fsdp", GIGABYTE, ranks)),
    ]
    found = told(trials, {10 * at + more: state for at in range(3) for more, state in ((0, REPLICAS), (5, SHARDS))})
    assert [kind for kind, _ in found] == ["finding", "doubt"]
    assert "On 8 ranks" in found[0][1]


@pytest.mark.parametrize(
    "states",
    [
        {},
        {0: REPLICAS},
        {0: REPLICAS, 2: REPLICAS},
        {0: REPLICAS, 2: ModelState(10**8, 8.0, "adamw", 2 * GIGABYTE)},  # where shards are measured to leave nothing
    ],
)
def test_nothing_is_told_where_state_is_unknown_or_no_plan_saves_any(states: Mapping[int, ModelState]) -> None:
    assert told([*plan(0, "ddp", 2.4 * GIGABYTE), *plan(2, "fsdp", 2.4 * GIGABYTE)], states) == []


def test_configurations_that_differ_in_more_than_their_plan_name_no_size() -> None:
    assert told([*plan(0, "ddp", GIGABYTE), *plan(2, "ddp", GIGABYTE, batch=64)], {0: REPLICAS, 2: SHARDS}) == []
    assert sentences(None, []) == []


def test_the_size_stands_among_the_findings_of_an_analysis() -> None:
    trials = [*plan(0, "ddp", 2.4 * GIGABYTE), *plan(2, "fsdp", 1.6 * GIGABYTE)]
    found = analyze(spec(), trials, Counted({0: REPLICAS, 2: SHARDS}))
    assert any("take fsdp above 1.3 B parameters at the latest" in each.text for each in found.sentences if each.kind == "finding")
