from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from paceline.cluster.experiments.analysis.predictions import CostModelFindings, consult
from paceline.cluster.experiments.analysis.predictor import FittedPredictor, MeasuredConfiguration, PredictedStep, Predictor
from paceline.cluster.experiments.analysis.scaling import rank_series, references
from tests.cluster.experiments.analysis.made_up import STRATEGY, groups, repeats


@dataclass
class SerialShare:
    """A model with one constant, which it reads off the configuration with the most ranks."""

    seconds: float = 0.0
    share: float = 0.0

    def fit(self, measured: Sequence[MeasuredConfiguration]) -> SerialShare | None:
        single = next((each for each in measured if each.world_size == 1), None)
        if single is None or all(each.world_size == 1 for each in measured):
            return None
        largest = max(measured, key=lambda each: each.world_size)
        n = largest.world_size
        return SerialShare(single.step_seconds, (largest.step_seconds / single.step_seconds - 1 / n) / (1 - 1 / n))

    def predict(self, trial: int, ranks: int) -> PredictedStep | None:
        step = self.seconds * (self.share + (1 - self.share) / ranks)
        return None if step <= 0 else PredictedStep(step, 32 / step, "a serial share", peak_memory_bytes=1e9)

    def state(self, trial: int) -> None:
        return None


class NoOpinion:
    def fit(self, measured: Sequence[MeasuredConfiguration]) -> FittedPredictor | None:
        return None

    def state(self, trial: int) -> None:
        return None


@dataclass
class Broken:
    step: PredictedStep | None

    def fit(self, measured: Sequence[MeasuredConfiguration]) -> Broken:
        return self

    def predict(self, trial: int, ranks: int) -> PredictedStep | None:
        return self.step

    def state(self, trial: int) -> None:
        return None


def ask(predictor: Predictor | None) -> CostModelFindings:
    trials = [
        *repeats(0, {"world_size": 1}, [1.0, 1.0]),
        *repeats(2, {STRATEGY: "ddp", "world_size": 2}, [0.6, 0.6]),
        *repeats(4, {STRATEGY: "ddp", "world_size": 8}, [0.2125, 0.2125]),
        *repeats(6, {STRATEGY: "ddp", "world_size": 3}, [1.0], state="refused", refusal="no"),
    ]
    found = groups(trials)
    return consult(predictor, found, rank_series(found, references(found)))


def test_a_model_is_checked_on_what_was_measured_and_told_for_more_ranks() -> None:
    found = ask(SerialShare())
    assert {each.configuration: round(each.error, 6) for each in found.checks} == {0: 0.0, 1: round(0.55 / 0.6 - 1, 6), 2: 0.0}
    assert set(found.step_seconds) == {0, 1, 2}
    assert [each.ranks for each in found.predictions] == [16, 32, 64, 128, 256, 512, 1024]
    assert {each.configuration for each in found.predictions} == {2}
    first = found.predictions[0]
    assert first.step_seconds == pytest.approx(0.1 + 0.9 / 16)
    assert first.efficiency == pytest.approx(1 / (0.1 + 0.9 / 16) / 16)
    assert (first.peak_memory_bytes, first.assumptions) == (1e9, "a serial share")


@pytest.mark.parametrize(
    "predictor",
    [None, NoOpinion(), Broken(None), Broken(PredictedStep(math.nan, 1.0, "")), Broken(PredictedStep(0.0, 1.0, ""))],
    ids=["none", "no fit", "no answer", "not a number", "no time"],
)
def test_without_an_answer_nothing_is_predicted(predictor: Predictor | None) -> None:
    found = ask(predictor)
    assert (dict(found.step_seconds), [*found.checks], [*found.predictions]) == ({}, [], [])


def test_a_model_is_not_asked_where_nothing_is_measured() -> None:
    assert consult(SerialShare(), groups(repeats(0, {"world_size": 1}, [1.0], state="failed")), []) == CostModelFindings()
