"""Comparisons as sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.cluster.experiments.analysis.comparisons import ConfigurationPair
from paceline.cluster.experiments.analysis.figures import ComparedFigure
from paceline.cluster.experiments.analysis.labels import words_of
from paceline.cluster.experiments.analysis.statistics import ALPHA, median
from paceline.cluster.experiments.analysis.words import number, percent
from paceline.monitoring.words import plural


def change(figure: ComparedFigure, ratio: float) -> str:
    """Write a ratio as a change, such as `9 % fewer samples per second`."""
    if ratio == 1:
        return f"the same {figure.noun}"
    if ratio <= 0 or ratio >= 3:
        return f"{number(ratio)} times the {figure.noun}"
    return f"{percent(abs(ratio - 1))} {figure.more if ratio > 1 else figure.less} {figure.noun}"


def difference_text(figure: ComparedFigure, pair: ConfigurationPair, ratio: float, p_value: float | None) -> str:
    """Write how the second configuration differs from the first, and whether that is shown."""
    repeats = (len(pair.first.figures[figure.name]), len(pair.second.figures[figure.name]))
    return f"{pair.second.label} beside {pair.first.label}: {change(figure, ratio)}{verdict(figure, p_value, repeats)}."


def effect_text(figure: ComparedFigure, pairs: Sequence[ConfigurationPair], ratios: Sequence[float], p_value: float | None) -> str:
    """Write how a value differs from another one over all their pairs, and whether that is shown."""
    first, second = (words_of(pairs[0].paths, values) for values in pairs[0].values)
    spread = f"{_signed(min(ratios))} to {_signed(max(ratios))} in {plural(len(pairs), 'pair')}" if len(pairs) > 1 else ""
    repeats = (len(pairs[0].first.figures[figure.name]), len(pairs[0].second.figures[figure.name]))
    return f"{second} instead of {first}: {change(figure, median(ratios))}{verdict(figure, p_value, repeats, spread)}."


def verdict(figure: ComparedFigure, p_value: float | None, repeats: tuple[int, int], spread: str = "") -> str:
    """Write what a test says: shown, not shown, or not to be shown with so few repeats or with one seed."""
    told = f" ({spread})" if spread else ""
    few = "one repeat of each" if repeats == (1, 1) else f"{repeats[0]} and {plural(repeats[1], 'repeat')}"
    if p_value is None and figure.one_seed:
        return f" with this seed{told}, which {few if repeats == (1, 1) else 'one seed'} cannot show to be a difference"
    if p_value is None:
        return f" in the medians{told}, which {few} cannot show to be a difference"
    tested = f"({spread}; p {probability(p_value)})" if spread else f"(p {probability(p_value)})"
    return f" {tested}" if p_value < ALPHA else f", which is not shown to be a difference {tested}"


def probability(p_value: float) -> str:
    """Write a p-value, such as `= 0.03`, or `under 0.001`."""
    return "under 0.001" if p_value < 0.001 else f"= {p_value:.2g}"


def _signed(ratio: float) -> str:
    """A ratio as a change in percent with its sign, or as a factor where it is large."""
    if ratio <= 0 or ratio >= 3:
        return f"{number(ratio)} times"
    return f"{'+' if ratio > 1 else '-' if ratio < 1 else ''}{percent(abs(ratio - 1))}"
