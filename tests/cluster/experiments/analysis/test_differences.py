from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.cluster.experiments.analysis.comparisons import pairs
from paceline.cluster.experiments.analysis.configurations import axes, group
from paceline.cluster.experiments.analysis.differences import differences, effects
from paceline.cluster.experiments.analysis.figures import compared_figures
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.findings import Effect, FigureDifference
from tests.cluster.experiments.analysis.made_up import BATCH, RATE, SEVEN, STRATEGY, repeats, scaled, spec


def found(trials: list[TrialFacts], **changes: Any) -> tuple[list[FigureDifference], list[Effect]]:
    described = spec(**changes)
    compared = pairs(described, axes(described, trials), group(described, trials))
    figures = compared_figures(described)
    return differences(figures, compared), effects(figures, compared)


def two(first: list[float], second: list[float], **figures: Any) -> list[TrialFacts]:
    return [*repeats(0, {STRATEGY: "ddp"}, first, **figures), *repeats(100, {STRATEGY: "fsdp"}, second, **figures)]


def test_a_planted_difference_is_one() -> None:
    (each,), (effect,) = found(two(scaled(0.91), scaled(1.0)))
    assert (each.first, each.second, each.path, each.figure) == (0, 1, STRATEGY, "samples_per_second")
    assert each.ratio == pytest.approx(0.91)
    assert each.is_difference
    assert each.p_value == pytest.approx(2 / 3432)
    assert each.text == "fsdp beside ddp: 9 % fewer samples per second (p under 0.001)."
    assert (effect.first, effect.second, effect.pairs, effect.is_difference) == ("ddp", "fsdp", [(0, 1)], True)


def test_without_a_planted_difference_there_is_none() -> None:
    (each,), _ = found(two(scaled(1.0), scaled(1.001, SEVEN[::-1])))
    assert not each.is_difference
    assert each.p_value is not None
    assert "which is not shown to be a difference" in each.text


def test_three_repeats_cannot_show_one_however_large() -> None:
    (each,), _ = found(two([1.0, 1.1, 1.2], [9.0, 9.1, 9.2]))
    assert (each.p_value, each.is_difference) == (None, False)
    assert "3 and 3 repeats cannot show" in each.text


def test_but_three_repeats_of_two_pairs_can() -> None:
    trials = [
        *repeats(0, {STRATEGY: "ddp", BATCH: 16}, [1.0, 1.01, 1.02]),
        *repeats(3, {STRATEGY: "fsdp", BATCH: 16}, [1.1, 1.11, 1.12]),
        *repeats(6, {STRATEGY: "ddp", BATCH: 32}, [2.0, 2.01, 2.02]),
        *repeats(9, {STRATEGY: "fsdp", BATCH: 32}, [2.4, 2.41, 2.42]),
    ]
    _, all_effects = found(trials)
    effect = next(each for each in all_effects if each.path == STRATEGY)
    assert effect.is_difference
    assert (effect.smallest_ratio, effect.largest_ratio) == pytest.approx((2.01 / 2.41, 1.01 / 1.11))
    assert effect.text == "fsdp instead of ddp: 13 % fewer samples per second (-17 % to -9 % in 2 pairs; p = 0.01)."


def test_only_pairs_that_differ_in_one_value_are_compared() -> None:
    trials = [*repeats(0, {STRATEGY: "ddp", BATCH: 16}, [1.0, 2.0]), *repeats(2, {STRATEGY: "fsdp", BATCH: 32}, [1.0, 2.0])]
    assert found(trials) == ([], [])


def test_columns_that_change_together_are_one_value() -> None:
    trials = [*repeats(0, {RATE: 0.1, BATCH: 16}, [1.0, 2.0]), *repeats(2, {RATE: 0.2, BATCH: 32}, [1.0, 2.0])]
    (each,), (effect,) = found(trials, zip=[{RATE: [0.1, 0.2], BATCH: [16, 32]}])
    assert each.path == f"{RATE}, {BATCH}"
    assert (effect.first, effect.second) == ([0.1, 16], [0.2, 32])
    assert effect.text.startswith("lr 0.2, batch 32 instead of lr 0.1, batch 16: ")


def test_of_many_values_neighbours_are_compared() -> None:
    trials = [trial for at in range(6) for trial in repeats(2 * at, {RATE: at}, [1.0, 1.0])]
    compared, _ = found(trials)
    assert sorted((each.first, each.second) for each in compared) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_rounding_is_no_difference() -> None:
    metric = {"metric": [2.0] * 7}
    trials = [
        *repeats(0, {STRATEGY: "ddp"}, scaled(1.0), **metric),
        *repeats(7, {STRATEGY: "fsdp"}, scaled(1.0), metric=[2.00002] * 7),
    ]
    compared, _ = found(trials)
    loss = next(each for each in compared if each.figure == "metric")
    assert loss.p_value is not None
    assert loss.p_value < 0.05
    assert not loss.is_difference


def test_repeats_with_one_seed_show_nothing_of_a_metric() -> None:
    trials = [*repeats(0, {RATE: 1}, scaled(1.0), metric=2.0), *repeats(7, {RATE: 2}, scaled(1.0), metric=3.0)]
    compared, _ = found(trials, vary_seed=False)
    loss = next(each for each in compared if each.figure == "metric")
    assert (loss.p_value, loss.is_difference) == (None, False)
    assert loss.text == "lr 2 beside lr 1: 50 % higher final loss with this seed, which one seed cannot show to be a difference."


def test_of_a_hundred_comparisons_of_noise_none_is_called_a_difference_as_a_rule() -> None:
    """Uncorrected, five of a hundred would be."""
    draws = np.random.default_rng(3).normal(1, 0.05, size=(101, 6))
    trials = [trial for at, steps in enumerate(draws.tolist()) for trial in repeats(6 * at, {RATE: at}, steps)]
    compared, _ = found(trials)
    assert len(compared) == 100
    assert not any(each.is_difference for each in compared)


def test_a_metric_of_nought_has_no_ratio() -> None:
    compared, _ = found(two(scaled(1.0), scaled(1.0), metric=0.0))
    assert {each.figure for each in compared} == {"samples_per_second"}
