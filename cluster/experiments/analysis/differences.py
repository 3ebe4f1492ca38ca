"""Differences between two configurations, and effects of a value over many pairs; each is called one only where a test says so. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.cluster.experiments.analysis.comparisons import ConfigurationPair
from paceline.cluster.experiments.analysis.configurations import canonical
from paceline.cluster.experiments.analysis.difference_words import difference_text, effect_text
from paceline.cluster.experiments.analysis.figures import ComparedFigure
from paceline.cluster.experiments.analysis.statistics import (
    ALPHA,
    ROUNDING,
    Stratum,
    can_be_shown,
    holm,
    least_p,
    median,
    permutation_p,
    usable,
)
from paceline.cluster.experiments.findings import Effect, FigureDifference

MOST_DIFFERENCES = 300
MOST_EFFECTS = 200


@dataclass(frozen=True)
class FigureComparison:
    """One figure of one pair or, for an effect, of several pairs with the same two values."""

    figure: ComparedFigure
    pairs: tuple[ConfigurationPair, ...]
    ratios: tuple[float, ...]  # of medians, second over first, of each pair
    p_value: float | None = None

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def is_difference(self) -> bool:
        return self.p_value is not None and self.p_value < ALPHA and abs(self.ratio - 1) > ROUNDING


def differences(figures: Sequence[ComparedFigure], pairs: Sequence[ConfigurationPair]) -> list[FigureDifference]:
    """Return the comparison of each pair in each figure that both have; MOST_DIFFERENCES of them, those that are differences first."""
    compared = [found for figure in figures for found in _tested([_compare(figure, (pair,)) for pair in pairs])]
    compared.sort(key=lambda each: (not each.is_difference, -_distance(each.ratio)))
    return [_difference(each) for each in compared[:MOST_DIFFERENCES]]


def effects(figures: Sequence[ComparedFigure], pairs: Sequence[ConfigurationPair]) -> list[Effect]:
    """Return what each value changes against each other one it is paired with, in each figure, over all pairs; MOST_EFFECTS of them."""
    by_values: dict[str, list[ConfigurationPair]] = {}
    for pair in pairs:
        by_values.setdefault(canonical({"paths": pair.paths, "values": pair.values}), []).append(pair)
    compared = [found for figure in figures for found in _tested([_compare(figure, tuple(members)) for members in by_values.values()])]
    return [_effect(each) for each in compared[:MOST_EFFECTS]]


def _compare(figure: ComparedFigure, pairs: Sequence[ConfigurationPair]) -> FigureComparison | None:
    """A figure over the pairs in which both configurations have it; None: in no pair, or without a ratio."""
    known = [pair for pair in pairs if pair.first.figures[figure.name] and pair.second.figures[figure.name]]
    ratios = [(pair, _ratio(pair, figure.name)) for pair in known]
    told = [(pair, ratio) for pair, ratio in ratios if ratio is not None]
    if not told:
        return None
    return FigureComparison(figure, tuple(pair for pair, _ in told), tuple(ratio for _, ratio in told))


def _ratio(pair: ConfigurationPair, figure: str) -> float | None:
    first, second = median(pair.first.figures[figure]), median(pair.second.figures[figure])
    return usable(second / first) if first else None


def _tested(comparisons: Sequence[FigureComparison | None]) -> list[FigureComparison]:
    """All comparisons of one figure with p-values, corrected for the number of those that had enough repeats to be tested."""
    known = [each for each in comparisons if each is not None]
    strata = [(at, _strata(each)) for at, each in enumerate(known) if not each.figure.one_seed]
    p_values = {strata[place][0]: permutation_p(strata[place][1]) for place in can_be_shown([least_p(each) for _, each in strata])}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [replace(each, p_value=corrected.get(at)) for at, each in enumerate(known)]


def _strata(comparison: FigureComparison) -> list[Stratum]:
    """The values of each pair, as shares of the median of all of them, so that all pairs count alike whichever value is whose."""
    return [_relative(pair.first.figures[comparison.figure.name], pair.second.figures[comparison.figure.name]) for pair in comparison.pairs]


def _relative(first: Sequence[float], second: Sequence[float]) -> Stratum:
    scale = abs(median([*first, *second])) or 1.0
    return [value / scale for value in first], [value / scale for value in second]


def _distance(ratio: float) -> float:
    """How far a ratio is from 1, the same for its inverse."""
    return max(ratio, 1 / ratio) if ratio > 0 else float("inf")


def _difference(compared: FigureComparison) -> FigureDifference:
    pair = compared.pairs[0]
    return FigureDifference(
        first=pair.first.index,
        second=pair.second.index,
        path=pair.path,
        figure=compared.figure.name,
        ratio=compared.ratio,
        p_value=compared.p_value,
        is_difference=compared.is_difference,
        text=difference_text(compared.figure, pair, compared.ratio, compared.p_value),
    )


def _effect(compared: FigureComparison) -> Effect:
    pair = compared.pairs[0]
    first, second = (values[0] if len(values) == 1 else list(values) for values in pair.values)
    return Effect(
        path=pair.path,
        first=first,
        second=second,
        figure=compared.figure.name,
        pairs=[(each.first.index, each.second.index) for each in compared.pairs],
        ratio=compared.ratio,
        smallest_ratio=min(compared.ratios),
        largest_ratio=max(compared.ratios),
        p_value=compared.p_value,
        is_difference=compared.is_difference,
        text=effect_text(compared.figure, compared.pairs, compared.ratios, compared.p_value),
    )
