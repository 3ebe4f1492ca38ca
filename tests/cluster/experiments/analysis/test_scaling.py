from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cluster.experiments.analysis.scaling import rank_series, references, speedup
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.findings import Estimate
from tests.cluster.experiments.analysis.made_up import BATCH, STRATEGY, groups, repeats, scaled

CHECKPOINTING = "parallelism.activation_checkpointing"


def efficiency(trials: list[TrialFacts], scaling: str = "strong") -> Estimate | None:
    found = groups(trials)
    return speedup(found[-1], references(found).get(found[-1].index), scaling, per_rank=True)


def test_a_planted_efficiency_is_found_within_its_interval() -> None:
    single = repeats(0, {"world_size": 1}, scaled(0.4))
    four = repeats(7, {STRATEGY: "ddp", "world_size": 4}, scaled(0.4 / 4 / 0.8))
    found = efficiency([*single, *four])
    assert found is not None
    assert (found.value, found.count) == (pytest.approx(0.8), 7)
    assert found.low is not None
    assert found.high is not None
    assert 0.75 < found.low < 0.8 < found.high < 0.85


def test_the_single_process_is_the_measure() -> None:
    found = efficiency(repeats(0, {"world_size": 1}, scaled(0.4)))
    assert found == Estimate(value=1.0, count=7)


def test_weak_scaling_counts_samples() -> None:
    """Four ranks with four times the batch that need a quarter longer are four fifths efficient."""
    single = repeats(0, {"world_size": 1}, [1.0, 1.0])
    four = repeats(2, {"world_size": 4}, [1.25, 1.25])
    four_times = [replace(each, samples_per_second=4 * 32 / 1.25) for each in four]
    by_samples = efficiency([*single, *four_times], "weak")
    uncounted = [replace(each, samples_per_second=None) for each in [*single, *four]]
    by_steps = efficiency(uncounted, "weak")
    assert by_samples is not None
    assert by_steps is not None
    assert by_samples.value == by_steps.value == pytest.approx(0.8)


def test_other_work_is_no_measure() -> None:
    trials = [*repeats(0, {"world_size": 1, BATCH: 16}, [1.0]), *repeats(1, {"world_size": 2, BATCH: 32}, [1.0])]
    assert efficiency(trials) is None


def test_nor_is_a_process_that_failed() -> None:
    trials = [*repeats(0, {"world_size": 1}, [1.0], state="failed"), *repeats(1, {"world_size": 2}, [1.0])]
    assert efficiency(trials) is None
    assert references(groups(trials)) == {}


def test_the_single_process_with_the_same_plan_is_preferred() -> None:
    singles = [
        *repeats(0, {"world_size": 1}, [1.0], baseline=True),
        *repeats(1, {"world_size": 1, CHECKPOINTING: "full"}, [1.5]),
    ]
    found = groups([*singles, *repeats(2, {"world_size": 2, STRATEGY: "ddp", CHECKPOINTING: "full"}, [1.0])])
    assert references(found)[2].index == 1
    plain = groups([*singles, *repeats(2, {"world_size": 2, STRATEGY: "ddp"}, [1.0])])
    assert references(plain)[2].index == 0


def test_a_series_is_equal_in_all_but_ranks_and_begins_with_its_single_process() -> None:
    trials = [
        *repeats(0, {"world_size": 1}, [1.0], baseline=True),
        *repeats(1, {STRATEGY: "ddp", "world_size": 4}, [0.3]),
        *repeats(2, {STRATEGY: "fsdp", "world_size": 2}, [0.7]),
        *repeats(3, {STRATEGY: "ddp", "world_size": 2}, [0.6]),
    ]
    found = groups(trials)
    series = rank_series(found, references(found))
    assert [(each.label, [member.index for member in each.members], each.world_sizes) for each in series] == [
        ("ddp", [0, 3, 1], [1, 2, 4]),
        ("fsdp", [0, 2], [1, 2]),
    ]
