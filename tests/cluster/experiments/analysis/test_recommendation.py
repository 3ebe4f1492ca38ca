from __future__ import annotations

from dataclasses import replace
from typing import Any

from paceline.cluster.experiments.analysis.configurations import axes, group
from paceline.cluster.experiments.analysis.recommendation import Recommendation, recommend, sentences
from paceline.cluster.experiments.facts import TrialFacts
from tests.cluster.experiments.analysis.made_up import RATE, SEVEN, STRATEGY, repeats, scaled, spec


def take(trials: list[TrialFacts], **changes: Any) -> tuple[Recommendation, list[str]]:
    described = spec(**changes)
    found = recommend(described, axes(described, trials), group(described, trials))
    assert found is not None
    return found, [each.text for each in sentences(described, found)]


def strategies(ddp: list[float], fsdp: list[float]) -> list[TrialFacts]:
    return [*repeats(0, {STRATEGY: "ddp"}, ddp), *repeats(50, {STRATEGY: "fsdp"}, fsdp)]


def test_the_fastest_is_taken_without_a_doubt_where_that_is_shown() -> None:
    found, (text,) = take(strategies(scaled(1.0), scaled(0.8)))
    assert (found.best.index, found.figure, found.equal) == (1, "samples_per_second", [])
    assert text.startswith("Take fsdp: 40 samples per second (between ")
    assert text.endswith(" in the median of 7 trials, the fastest of 2 configurations.")


def test_a_lead_that_may_be_chance_is_doubted() -> None:
    found, (_, doubt) = take(strategies(scaled(1.0), scaled(0.999)))
    assert [each.index for each in found.equal] == [0]
    assert doubt == "That it is better than ddp (0.1 % slower) is not shown: such a lead may be chance."


def test_too_few_repeats_are_the_doubt() -> None:
    _, (_, doubt) = take(strategies([1.0, 1.0], [0.5, 0.5]))
    assert doubt == "2 repeats cannot show that it is better than ddp (50 % slower); repeats: 4 can."


RATES = [
    *repeats(0, {RATE: 0.1}, [1.0] * 5, metric=[2.0, 2.1, 2.2, 2.0, 2.1]),
    *repeats(5, {RATE: 0.2}, [2.0] * 5, metric=[1.0, 1.1, 1.2, 1.0, 1.1]),
]


def test_where_values_change_learning_the_metric_decides() -> None:
    found, (text,) = take(RATES)
    assert (found.best.index, found.figure) == (1, "metric")
    assert text.startswith("Take lr 0.2: final loss 1.1 (between 1 and 1.2)")


def test_speed_recommends_no_learning_rate_before_any_metric_is_known() -> None:
    trials = [*repeats(0, {RATE: 0.1}, [1.0], state="running"), *repeats(5, {RATE: 0.2}, [2.0], state="running")]
    assert recommend(spec(), axes(spec(), trials), group(spec(), trials)) is None
    plans = [replace(each, values={**each.values, STRATEGY: "ddp" if each.index else "fsdp"}) for each in trials]
    assert take(plans)[0].figure == "samples_per_second"


def test_the_goal_of_the_metric_counts() -> None:
    assert take(RATES, metric={"name": "accuracy", "goal": "maximize"})[0].best.index == 0


def test_one_seed_shows_nothing() -> None:
    _, (_, doubt) = take(RATES, vary_seed=False)
    assert doubt == "One seed cannot show that it is better than lr 0.1 (2.1)."


def test_a_single_configuration_has_no_rival() -> None:
    _, texts = take(repeats(0, {STRATEGY: "ddp"}, [1.0]))
    assert texts == ["Take ddp, 1 rank: 32 samples per second in one trial, the only configuration with a figure."]


def test_nothing_measured_has_no_recommendation() -> None:
    trials = repeats(0, {STRATEGY: "ddp"}, [1.0, 2.0], state="failed")
    assert recommend(spec(), [], group(spec(), trials)) is None


def rates(*values: float) -> list[TrialFacts]:
    return [
        trial for at, rate in enumerate(values) for trial in repeats(9 * at, {RATE: rate}, [1.0] * 7, metric=[1 / rate * n for n in SEVEN])
    ]


def test_a_best_value_at_the_end_of_those_tried_is_doubted() -> None:
    _, (_, *found) = take(rates(0.1, 0.2, 0.4))
    assert found == ["lr 0.4 is the largest of 3 values that were tried: a larger one may be better still."]
    assert not take(rates(0.1, 0.2))[1][1:]
    middle = [replace(trial, metric=0.1) if trial.values[RATE] == 0.2 else trial for trial in rates(0.1, 0.2, 0.4)]
    assert not take(middle)[1][1:]
