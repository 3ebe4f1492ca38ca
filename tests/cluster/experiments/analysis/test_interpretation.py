from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.cluster.experiments.analysis.analyze import analyze
from paceline.cluster.experiments.analysis.predictor import MeasuredConfiguration, PredictedStep
from paceline.cluster.experiments.facts import TrialFacts
from tests.cluster.experiments.analysis.made_up import BATCH, RATE, STRATEGY, losses, repeats, scaled, spec

FALLING = [2 / step for step in range(1, 41)]


@dataclass
class OffBy:
    """A model that knows every step, but for a factor."""

    factor: float

    def fit(self, measured: Sequence[MeasuredConfiguration]) -> OffBy:
        return self

    def state(self, trial: int) -> None:
        return None

    def predict(self, trial: int, ranks: int) -> PredictedStep | None:
        step = self.factor / ranks
        return PredictedStep(step, 32 / step, f"{ranks} ideal ranks.")


def scaling(seconds_of_two: list[float], **figures: Any) -> list[TrialFacts]:
    return [
        *repeats(0, {"world_size": 1}, scaled(1.0), series=losses(FALLING)),
        *repeats(7, {"world_size": 2, STRATEGY: "ddp"}, seconds_of_two, **figures),
    ]


def texts(trials: list[TrialFacts], kind: str = "finding", predictor: OffBy | None = None) -> list[str]:
    return [each.text for each in analyze(spec(), trials, predictor).sentences if each.kind == kind]


def test_efficiency_and_what_keeps_it_down() -> None:
    (text,) = texts(scaling(scaled(0.8), exposed_communication=0.375, bubble=0.05))
    assert text.startswith("ddp, 2 ranks: 1.25 times the speed of one process, an efficiency of 62 % (between ")
    assert text.endswith("; 38 % of a step is exposed communication.")


def test_ranks_that_make_it_slower_are_called_slower_only_where_that_is_sure() -> None:
    assert "slower than one process" in texts(scaling(scaled(1.5)))[0]
    assert "slower than one process" not in texts(scaling(scaled(1.001)))[0]


def test_more_than_ideal_is_not_believed() -> None:
    assert "more than ideal, so look at the single process first" in texts(scaling(scaled(0.3)))[0]


def test_of_each_strategy_the_fastest_series_is_told() -> None:
    trials = []
    for batch in (16, 32, 64):
        trials += repeats(len(trials), {"world_size": 1, BATCH: batch}, scaled(1.0))
        for strategy in ("ddp", "fsdp"):
            trials += repeats(len(trials), {"world_size": 2, BATCH: batch, STRATEGY: strategy}, scaled(0.6))
    told = [text.split(":")[0] for text in texts(trials) if "times the speed of one process" in text]
    assert told == ["ddp, 2 ranks, batch 64", "fsdp, 2 ranks, batch 64"]


def test_losses_that_are_those_of_one_process() -> None:
    found = texts(scaling(scaled(0.6), series=losses(FALLING)))
    assert found[-1] == "At equal samples the loss is that of one process but for rounding in 1 of 1 configuration."


def test_losses_that_are_near_and_those_that_are_not() -> None:
    near = texts(scaling(scaled(0.6), series=losses([1.005 * each for each in FALLING])))
    assert near[-1].endswith("but for rounding in 0 of 1 configuration, within 1 % in 1.")
    far = texts(scaling(scaled(0.6), series=losses([1.2 * each for each in FALLING])))
    assert far[-1].startswith("ddp, 2 ranks: after 400 samples a loss of ")
    assert "20 % higher" in far[-1]


def test_predictions_are_called_so_and_have_their_assumptions() -> None:
    found = texts(scaling(scaled(0.5)), predictor=OffBy(1.0))
    assert (
        "The cost model, fitted to these 2 configurations, misses their steps by 0 % in the median and 0 % at worst (single, 1 rank)."
        in found
    )
    assert found[-1] == "Predicted, not measured: ddp with an efficiency of 100 % on 64 ranks and 100 % on 1,024 ranks."
    assert "Predictions hold as far as their assumptions do; those on 1,024 ranks: 1024 ideal ranks." in texts(
        scaling(scaled(0.5)), "doubt", OffBy(1.0)
    )


def test_a_model_that_is_far_off_predicts_nothing() -> None:
    assert not any("redicted" in text for text in texts(scaling(scaled(0.5)), predictor=OffBy(2.0)))
    doubts = texts(scaling(scaled(0.5)), "doubt", OffBy(2.0))
    assert any(text.endswith("what it predicts of more ranks is not to be relied on.") for text in doubts)


def test_a_sweep_says_what_to_take_and_not_why() -> None:
    trials = [trial for at, loss in enumerate((2.0, 1.0, 3.0)) for trial in repeats(7 * at, {RATE: at}, scaled(1.0), metric=scaled(loss))]
    assert texts(trials, "recommendation") == [
        "Take lr 1: final loss 1 (between 0.99 and 1.01) in the median of 7 trials, the best of 3 configurations."
    ]
