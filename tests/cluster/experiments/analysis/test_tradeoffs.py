from __future__ import annotations

from paceline.cluster.experiments.analysis.comparisons import pairs
from paceline.cluster.experiments.analysis.configurations import axes, group
from paceline.cluster.experiments.analysis.differences import effects
from paceline.cluster.experiments.analysis.figures import compared_figures
from paceline.cluster.experiments.analysis.tradeoffs import sentences
from paceline.cluster.experiments.facts import TrialFacts
from tests.cluster.experiments.analysis.made_up import BATCH, SEVEN, STRATEGY, repeats, scaled, spec


def texts(trials: list[TrialFacts]) -> list[str]:
    described = spec()
    groups = group(described, trials)
    found = effects(compared_figures(described), pairs(described, axes(described, trials), groups))
    return [each.text for each in sentences(found, groups)]


def strategies(fsdp_seconds: list[float], fsdp_memory: list[float]) -> list[TrialFacts]:
    count = len(fsdp_seconds)
    return [
        *repeats(0, {STRATEGY: "ddp"}, scaled(0.91, SEVEN[:count]), peak_memory_bytes=scaled(3.0e9, SEVEN[:count])),
        *repeats(50, {STRATEGY: "fsdp"}, fsdp_seconds, peak_memory_bytes=fsdp_memory),
    ]


def test_the_price_of_saved_memory() -> None:
    assert texts(strategies(scaled(1.0), scaled(0.39 * 3.0e9))) == [
        "fsdp costs 9 % of speed here and saves 61 % of memory against ddp; take it where the 3 GB a rank of ddp do not fit."
    ]


def test_memory_that_costs_nothing() -> None:
    (text,) = texts(strategies(scaled(0.911, SEVEN[::-1]), scaled(0.39 * 3.0e9)))
    assert (
        text
        == "fsdp is not shown to cost speed here (0.1 % in the medians) and saves 61 % of memory against ddp; nothing measured here speaks for ddp."
    )


def test_a_price_for_nothing() -> None:
    (text,) = texts(strategies(scaled(1.0), scaled(3.3e9)))
    assert text == "fsdp costs 9 % of speed here and takes 10 % more memory against ddp; nothing measured here speaks for fsdp."


def test_the_slower_one_is_the_subject_whatever_the_order() -> None:
    (text,) = texts(strategies(scaled(0.8), scaled(6.0e9)))
    assert text.startswith(
        "ddp costs 12 % of speed here and saves 50 % of memory against fsdp; take it where the 6 GB a rank of fsdp do not fit"
    )


def test_few_repeats_say_so() -> None:
    (text,) = texts(strategies([1.0, 1.0], [1e9, 1e9]))
    assert "costs 9 % of speed here in the medians, too few repeats to show it, and saves 67 % of memory" in text


def test_without_memory_only_speed_is_told() -> None:
    trials = [*repeats(0, {STRATEGY: "ddp"}, scaled(0.91)), *repeats(7, {STRATEGY: "fsdp"}, scaled(1.0))]
    assert texts(trials) == ["fsdp costs 9 % of speed here against ddp."]


def test_other_values_are_told_where_they_are_shown_to_matter() -> None:
    trials = [*repeats(0, {BATCH: 16}, scaled(1.0)), *repeats(7, {BATCH: 32}, scaled(1.0))]
    assert texts(trials) == ["batch 32 instead of batch 16: 100 % more samples per second (p under 0.001)."]
    assert texts([*repeats(0, {BATCH: 16}, [1.0]), *repeats(7, {BATCH: 32}, [1.0])]) == []
