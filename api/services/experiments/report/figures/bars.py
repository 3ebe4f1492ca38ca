"""Horizontal bars of one measure with intervals: the fastest or leanest first, the recommended one in colour."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.api.services.experiments.report.figures.drawing import Canvas, Drawing
from paceline.api.services.experiments.report.figures.figure import ReportFigure
from paceline.api.services.experiments.report.figures.labels import short
from paceline.api.services.experiments.report.quantities import Measure, or_dash
from paceline.api.services.experiments.report.report_table import table
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Configuration, Estimate

#: More bars than this are no picture; the table has all.
MOST_BARS = 24


@dataclass(frozen=True)
class Bar:
    label: str
    value: Estimate
    chosen: bool


def bar_figure(subject: ReportSubject, name: str, title: str, measure: Measure, *, descending: bool) -> ReportFigure | None:
    """A figure of this measure; None where fewer than two configurations have it."""
    found = [(each, value) for each in subject.analysis.configurations if (value := measure.of(each)) is not None]
    if len(found) < 2:
        return None
    found.sort(key=lambda pair: pair[1].value, reverse=descending)
    drawn = with_recommended(found, subject.analysis.best)
    bars = [Bar(each.label, value, each.index == subject.analysis.best) for each, value in drawn]
    ends = "highest" if descending else "lowest"
    only = (
        f" Of {len(found)} configurations the {MOST_BARS} {ends} and the recommended one are drawn; the table has all."
        if len(found) > MOST_BARS
        else ""
    )
    caption = f"Medians over the repeats, the {ends} first; whiskers are 95 % bootstrap intervals.{_marked(bars)}{only}"
    return ReportFigure(
        name,
        title,
        caption,
        table(title, ["configuration", measure.label, "low", "high", "trials"], [_row(each, value, measure) for each, value in found]),
        Drawing(functools.partial(draw, bars, measure), height_of(len(bars))),
    )


def with_recommended(found: Sequence[tuple[Configuration, Estimate]], best: int | None) -> list[tuple[Configuration, Estimate]]:
    """The first MOST_BARS; where the recommended one is further behind, it takes the last place."""
    behind = [pair for pair in found[MOST_BARS:] if pair[0].index == best]
    return [*found[: MOST_BARS - len(behind)], *behind]


def height_of(bars: int) -> float:
    """Inches for so many bars and their axis."""
    return 0.9 + 0.3 * max(bars, 3)


def draw(bars: Sequence[Bar], measure: Measure, canvas: Canvas) -> None:
    axes, palette = canvas.axes, canvas.palette
    places = range(len(bars))
    unit, scale = measure.on_axis(max(bar.value.value for bar in bars))
    values = [bar.value.value * scale for bar in bars]
    axes.barh(places, values, height=0.62, color=[palette.accent if bar.chosen else palette.neutral for bar in bars])
    reach = max([*values, *(bar.value.high * scale for bar in bars if bar.value.high is not None)])
    for at, bar in enumerate(bars):
        end = values[at]
        if bar.value.low is not None and bar.value.high is not None:
            low, high = bar.value.low * scale, bar.value.high * scale
            axes.errorbar([values[at]], [at], xerr=[[values[at] - low], [high - values[at]]], color=palette.text, capsize=3, linewidth=1)
            end = high
        axes.text(end + reach * 0.012, at, measure.show(bar.value.value), va="center", fontsize=8)
    axes.set_yticks(places, [short(bar.label) for bar in bars])
    axes.tick_params(axis="y", length=0, labelcolor=palette.text)
    axes.set_xlim(0, reach * 1.14)
    axes.set_xlabel(unit)
    axes.grid(visible=True, axis="x")
    axes.invert_yaxis()


def _marked(bars: Sequence[Bar]) -> str:
    return " The recommended configuration is in colour." if any(bar.chosen for bar in bars) else ""


def _row(each: Configuration, value: Estimate, measure: Measure) -> list[str]:
    ends = [or_dash(end, measure.show) for end in (value.low, value.high)]
    return [each.label, measure.show(value.value), *ends, str(value.count)]
