"""The whole analysis: on odd and hostile facts, on planted ones, and on trials of real jobs."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.experiments.analysis.analyze import analyze
from paceline.cluster.experiments.facts import TrialFacts, TrialState
from paceline.cluster.experiments.findings import Analysis, Effect, FigureDifference
from tests.cluster.experiments.analysis.made_up import BATCH, RATE, STRATEGY, losses, recorded, repeats, scaled, spec
from tests.cluster.experiments.analysis.test_predictions import SerialShare

FALLING = losses([2 / step for step in range(1, 41)])


def planted() -> list[TrialFacts]:
    """FSDP costs a tenth of the speed and saves half of the memory; both are 80 % efficient on two ranks and worse on four."""
    found: list[TrialFacts] = []
    for batch in (16, 32):
        found += repeats(
            len(found), {"world_size": 1, BATCH: batch}, scaled(batch / 100), peak_memory_bytes=2e9, baseline=True, series=FALLING
        )
        for strategy, cost, memory in (("ddp", 1.0, 2e9), ("fsdp", 1 / 0.9, 1e9)):
            for ranks, efficiency in ((2, 0.8), (4, 0.7)):
                values = {"world_size": ranks, STRATEGY: strategy, BATCH: batch}
                seconds = scaled(batch / 100 / ranks / efficiency * cost)
                found += repeats(len(found), values, seconds, peak_memory_bytes=memory, series=FALLING, machines=1)
    return found


def texts(analysis: Analysis, kind: str) -> list[str]:
    return [each.text for each in analysis.sentences if each.kind == kind]


def compared(analysis: Analysis) -> list[FigureDifference | Effect]:
    return [*analysis.differences, *analysis.effects]


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [each for part in value.values() for each in numbers(part)]
    if isinstance(value, list):
        return [each for part in value for each in numbers(part)]
    return [value] if isinstance(value, float) else []


def test_what_was_planted_is_found() -> None:
    found = analyze(spec(), planted())
    best = found.configurations[found.best or 0]
    assert best.label == "ddp, 4 ranks, batch 16"
    assert best.efficiency is not None
    assert best.efficiency.value == pytest.approx(0.7)
    assert texts(found, "recommendation")[0].startswith("Take ddp, 4 ranks, batch 16: 280 samples per second")
    findings = texts(found, "finding")
    assert findings[0] == (
        "fsdp costs 10 % of speed here and saves 50 % of memory against ddp, over 4 pairs that are otherwise equal; "
        "take it where the 2 GB a rank of ddp do not fit."
    )
    assert any(text.startswith("ddp, 4 ranks, batch 16: 2.8 times the speed of one process, an efficiency of 70 %") for text in findings)
    assert any(text.startswith("Amdahl's law describes ddp, batch 16 on 1, 2 and 4 ranks") for text in findings)
    assert "All ranks of a trial shared one machine: this says nothing about a network between machines." in texts(found, "doubt")
    assert found.outliers == []


def test_real_trials_on_a_busy_machine_are_not_believed() -> None:
    """Step times of equal trials differed by up to five times: no difference of speed may be called one, while memory and losses are steady."""
    found = analyze(*recorded())
    assert (found.trials, found.completed, len(found.configurations)) == (18, 18, 6)
    assert [each.label for each in found.configurations][:3] == [
        "single, 1 rank, batch 16",
        "ddp, 2 ranks, batch 16",
        "fsdp, 2 ranks, batch 16",
    ]
    assert not any(each.is_difference for each in compared(found) if each.figure == "samples_per_second")
    memory = next(each for each in found.effects if (each.path, each.figure) == (STRATEGY, "peak_memory_bytes"))
    assert memory.is_difference
    assert 1.04 < memory.smallest_ratio < memory.largest_ratio < 1.09
    assert all(each.same for each in found.convergence)
    doubts = " ".join(texts(found, "doubt"))
    for words in (
        "3 repeats cannot show",
        "differ by up to 4.7 times",
        "shared one machine",
        "more than two ranks",
        "3 different numbers",
    ):
        assert words in doubts
    assert "side by side" not in doubts, "each began while the one before it was ending, by a twentieth of its time at most"


@pytest.mark.parametrize("state", ["waiting", "failed", "refused", "cancelled"])
def test_without_a_measured_trial_there_is_only_a_doubt(state: TrialState) -> None:
    found = analyze(spec(), [replace(each, state=state, refusal="no" if state == "refused" else None) for each in planted()[:9]])
    assert (found.best, found.best_trial, found.differences, found.fits, found.series) == (None, None, [], [], [])
    assert texts(found, "recommendation") == texts(found, "finding") == []
    assert texts(found, "doubt")[0] == "Nothing is measured yet, so there is nothing to recommend."


def test_no_trials() -> None:
    found = analyze(spec(), [])
    assert (found.trials, found.configurations, found.axes) == (0, [], [])


def test_one_trial_claims_nothing_but_itself() -> None:
    found = analyze(spec(), repeats(0, {STRATEGY: "ddp", "world_size": 2}, [1.0]))
    assert texts(found, "recommendation") == [
        "Take ddp, 2 ranks: 32 samples per second in one trial, the only configuration with a figure."
    ]
    assert texts(found, "finding") == []


def test_equal_trials_differ_in_nothing() -> None:
    trials = [replace(each, step_seconds=1.0, samples_per_second=32.0, peak_memory_bytes=1e9, metric=1.0) for each in planted()]
    found = analyze(spec(), trials)
    assert not any(each.is_difference for each in compared(found))
    assert all(each.pareto for each in found.configurations)
    assert found.outliers == []


def test_the_order_of_the_trials_tells_nothing() -> None:
    trials = planted()
    shuffled = random.Random(1).sample(trials, len(trials))
    assert analyze(spec(), shuffled) == analyze(spec(), trials)


def test_what_was_used_is_summed_over_all_trials_whatever_became_of_them() -> None:
    """It was that of completed trials, with the median for each: a halving told a fifth of what it had used."""
    states: list[TrialState] = ["completed", "completed", "completed", "pruned", "failed"]
    trials = repeats(0, {RATE: 1}, scaled(1.0)[:5], state=states, slot_hours=[1.0, 1.0, 10.0, 2.0, 4.0], energy_joules=[5.0] * 5)
    trials += repeats(5, {RATE: 2}, [1.0], state="waiting")
    found = analyze(spec(), trials)
    assert (found.slot_hours, found.energy_joules) == (18.0, 25.0)
    assert (found.completed, found.failed, found.ended) == (3, 1, 5), "the pruned one has ended, the waiting one has not"
    unread = analyze(spec(), [replace(trials[0], energy_joules=None), *trials[1:]])
    assert (unread.slot_hours, unread.energy_joules) == (18.0, None)
    idle = analyze(spec(), trials[5:])
    assert (idle.slot_hours, idle.energy_joules) == (None, None)


@settings(deadline=None, max_examples=10)
@given(st.floats(0.01, 100))
def test_a_faster_clock_changes_no_verdict(unit: float) -> None:
    trials = [
        replace(each, step_seconds=(each.step_seconds or 0) * unit, samples_per_second=(each.samples_per_second or 0) / unit)
        for each in planted()
    ]
    found, plain = analyze(spec(), trials), analyze(spec(), planted())
    assert [(each.is_difference, each.p_value) for each in found.effects] == [(each.is_difference, each.p_value) for each in plain.effects]
    assert [each.efficiency.value for each in found.configurations if each.efficiency] == pytest.approx(
        [each.efficiency.value for each in plain.configurations if each.efficiency]
    )
    assert (found.best, [each.pareto for each in found.configurations]) == (plain.best, [each.pareto for each in plain.configurations])


HOSTILE = (None, 0.0, -1.0, 1e-320, 1e-30, 0.5, 1.0, 1.0, 2.0, 1e30, 1e300, math.inf, -math.inf, math.nan)
STATES: list[TrialState] = [
    "refused",
    "waiting",
    "running",
    "paused",
    "failed",
    "cancelled",
    "pruned",
    "completed",
    "completed",
    "completed",
]
DRAWN = (
    "step_seconds",
    "samples_per_second",
    "bytes_per_step",
    "bubble",
    "peak_memory_bytes",
    "metric",
    "goodput",
    "slot_hours",
    "energy_joules",
)


def hostile(draw: random.Random, index: int) -> TrialFacts:
    ranks, strategy = draw.choice([1, 2, 4, 8]), draw.choice(["single", "ddp", "fsdp"])
    figures: dict[str, Any] = {name: draw.choice(HOSTILE) for name in DRAWN}
    return TrialFacts(
        index=index,
        values={"world_size": ranks, STRATEGY: strategy},
        repeat=draw.randrange(4),
        baseline=draw.random() < 0.2,
        state=draw.choice(STATES),
        world_size=ranks,
        strategy=strategy,
        refusal="no",
        series=losses([draw.choice([*HOSTILE[1:]]) or 0.0 for _ in range(draw.randrange(4))]),
        parts={"communication": draw.choice(HOSTILE[1:]) or 0.0},
        **figures,
    )


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(0, 40))
def test_whatever_trials_tell_every_number_is_finite(seed: int, count: int) -> None:
    draw = random.Random(seed)
    found = analyze(spec(), [hostile(draw, index) for index in range(count)], SerialShare())
    document = json.loads(found.model_dump_json())
    assert all(math.isfinite(each) for each in numbers(document))
    assert [each["index"] for each in document["configurations"]] == [*range(len(document["configurations"]))]
    assert not any(word in sentence.text for sentence in found.sentences for word in ("nan", "inf ", "None"))
    best = found.configurations[found.best] if found.best is not None else None
    assert best is None or best.samples_per_second is not None or best.metric is not None
