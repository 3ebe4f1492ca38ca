"""The configuration to take, which others are not shown to be worse, and the sentences that say so. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials, changes_learning
from paceline.cluster.experiments.analysis.labels import words_of
from paceline.cluster.experiments.analysis.statistics import (
    ALPHA,
    can_be_shown,
    enough_repeats,
    estimate,
    holm,
    least_p,
    median,
    permutation_p,
)
from paceline.cluster.experiments.analysis.words import between, listed, number, percent
from paceline.cluster.experiments.findings import Sentence
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.monitoring.words import plural

SPEED, METRIC = "samples_per_second", "metric"
ONE_SEED = "One seed"
#: Fewer say nothing of where the best one lies.
ENOUGH_VALUES = 3


@dataclass(frozen=True)
class Recommendation:
    """The best configuration by one figure, with its rivals: the next ones, best first."""

    best: RepeatedTrials
    figure: str
    rivals: Sequence[RepeatedTrials]
    equal: Sequence[RepeatedTrials]  # rivals that a test does not show to be worse
    untested: str | None  # why nothing can be shown; None: a test was possible


def recommend(spec: ExperimentSpec, axes: Sequence[str], configurations: Sequence[RepeatedTrials]) -> Recommendation | None:
    """Return the configuration with the best median: of the metric where values that change learning vary, else of the speed.

    None: nothing is measured that could decide.
    """
    figure = next((name for name in _deciding(spec, axes) if any(each.figures[name] for each in configurations)), None)
    if figure is None:
        return None
    less_is_better = figure == METRIC and spec.metric.goal == "minimize"
    known = [each for each in configurations if each.figures[figure]]
    ordered = sorted(known, key=lambda each: (median(each.figures[figure]) * (1 if less_is_better else -1), each.index))
    best, rivals = ordered[0], ordered[1:]
    if figure == METRIC and not spec.vary_seed:
        return Recommendation(best, figure, rivals, rivals, ONE_SEED)
    strata = [[(best.figures[figure], each.figures[figure])] for each in rivals]
    p_values = {rivals[place].index: permutation_p(strata[place]) for place in can_be_shown([least_p(pair) for pair in strata])}
    worse = {index for index, p_value in zip(p_values, holm(list(p_values.values())), strict=True) if p_value < ALPHA}
    untested = None if p_values else plural(len(best.figures[figure]), "repeat")
    return Recommendation(best, figure, rivals, [each for each in rivals if each.index not in worse], untested)


def _deciding(spec: ExperimentSpec, axes: Sequence[str]) -> tuple[str, ...]:
    """The figures that may decide, the first that is measured: where nothing but learning varies, speed does not."""
    learning = [changes_learning(path) for path in axes]
    if learning and all(learning):
        return (METRIC,)
    return (METRIC, SPEED) if any(learning) or spec.search is not None or spec.halving is not None else (SPEED, METRIC)


def sentences(spec: ExperimentSpec, recommendation: Recommendation) -> list[Sentence]:
    """Write what to take, and what speaks against being sure of it."""
    best, values = recommendation.best, recommendation.best.figures[recommendation.figure]
    found = estimate(values)
    value = number(median(values))
    measured = f"{value} samples per second" if recommendation.figure == SPEED else f"final {spec.metric.name} {value}"
    text = f"Take {best.label}: {measured}{between(found) if found else ''} in {_runs(len(values))}{_rank(recommendation)}."
    return [Sentence(kind="recommendation", text=text, configurations=[best.index]), *_doubt(recommendation), *_edges(recommendation)]


def _runs(count: int) -> str:
    return "one trial" if count == 1 else f"the median of {count} trials"


def _rank(recommendation: Recommendation) -> str:
    if not recommendation.rivals:
        return ", the only configuration with a figure"
    word = "fastest" if recommendation.figure == SPEED else "best"
    return f", the {word} of {len(recommendation.rivals) + 1} configurations"


def _doubt(recommendation: Recommendation) -> list[Sentence]:
    """The rivals that may be as good; nothing where all are shown to be worse."""
    if not recommendation.equal:
        return []
    indices = [each.index for each in recommendation.equal]
    names = listed([f"{each.label} ({_behind(recommendation, each)})" for each in recommendation.equal])
    if recommendation.untested is None:
        text = f"That it is better than {names} is not shown: such a lead may be chance."
    else:
        text = f"{recommendation.untested} cannot show that it is better than {names}{_way_out(recommendation)}."
    return [Sentence(kind="doubt", text=text, configurations=indices)]


def _edges(recommendation: Recommendation) -> list[Sentence]:
    """Values of the best configuration that are the smallest or the largest of several, where they change what is learned."""
    best, tried = recommendation.best, [recommendation.best, *recommendation.rivals]
    found = []
    for path, value in best.values.items():
        numbers = sorted({each.values[path] for each in tried if is_number(each.values.get(path))})
        if len(numbers) < ENOUGH_VALUES or not changes_learning(path) or value not in (numbers[0], numbers[-1]):
            continue
        end, beyond = ("smallest", "smaller") if value == numbers[0] else ("largest", "larger")
        text = f"{words_of([path], [value])} is the {end} of {len(numbers)} values that were tried: a {beyond} one may be better still."
        found.append(Sentence(kind="doubt", text=text, configurations=[best.index]))
    return found


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _way_out(recommendation: Recommendation) -> str:
    """Say how many repeats would be enough; nothing where it is the seed that was one and the same."""
    if recommendation.untested == ONE_SEED:
        return ""
    return f"; repeats: {enough_repeats(len(recommendation.rivals))} can"


def _behind(recommendation: Recommendation, rival: RepeatedTrials) -> str:
    """By how much a rival is behind, with the interval of both being apart or not."""
    own, other = median(recommendation.best.figures[recommendation.figure]), median(rival.figures[recommendation.figure])
    if own == other:
        return "equal"
    if recommendation.figure == SPEED and own > 0:
        return f"{percent(1 - other / own)} slower"
    return number(other)
