"""Where the time of a step goes: one stacked bar for each configuration."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.api.services.experiments.report.figures.bars import MOST_BARS, height_of
from paceline.api.services.experiments.report.figures.drawing import Canvas, Drawing
from paceline.api.services.experiments.report.figures.figure import ReportFigure
from paceline.api.services.experiments.report.figures.labels import short
from paceline.api.services.experiments.report.quantities import STEP_TIME, or_dash, seconds
from paceline.api.services.experiments.report.report_table import table
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Analysis, Configuration

#: In the order in which a step does them; other names come behind.
ORDER = ("data", "forward", "backward", "communication", "optimizer", "other")


@dataclass(frozen=True)
class StackedBars:
    labels: Sequence[str]
    parts: Sequence[tuple[str, Sequence[float]]]  # by name: seconds of each bar
    totals: Sequence[float]


def figure(subject: ReportSubject) -> ReportFigure | None:
    """The figure; None where no configuration told the parts of its steps."""
    chosen = [each for each in subject.analysis.configurations if each.parts]
    if not chosen:
        return None
    names = part_names(subject.analysis)
    only = f" The first {MOST_BARS} of {len(chosen)} are drawn; the table has all." if len(chosen) > MOST_BARS else ""
    return ReportFigure(
        "step_time",
        "Where a step's time goes",
        "Seconds of a typical step on rank 0, by what it was spent on. Communication is what the rank waited for: what goes on beside computing "
        f"is not in it.{only}",
        table("Where a step's time goes", ["configuration", *names, "whole step"], [_row(each, names) for each in chosen]),
        Drawing(functools.partial(draw, stacked(chosen[:MOST_BARS], names)), height_of(min(len(chosen), MOST_BARS)) + 0.3),
    )


def part_names(analysis: Analysis) -> list[str]:
    """The names of all parts, in the order of a step."""
    known = {name for each in analysis.configurations for name in each.parts}
    return [*(name for name in ORDER if name in known), *sorted(known - set(ORDER))]


def stacked(chosen: Sequence[Configuration], names: Sequence[str]) -> StackedBars:
    parts = [(name, [each.parts.get(name, 0.0) for each in chosen]) for name in names]
    return StackedBars([each.label for each in chosen], parts, [sum(each.parts.values()) for each in chosen])


def draw(bars: StackedBars, canvas: Canvas) -> None:
    axes, palette = canvas.axes, canvas.palette
    places = range(len(bars.labels))
    left = [0.0] * len(bars.labels)
    unit, scale = STEP_TIME.on_axis(max(bars.totals))
    for at, (name, values) in enumerate(bars.parts):
        axes.barh(places, [value * scale for value in values], left=left, height=0.62, color=palette.colour(at), label=name,
                  edgecolor=palette.surface, linewidth=0.8)  # fmt: skip
        left = [before + value * scale for before, value in zip(left, values, strict=True)]
    reach = max(left)
    for at, total in enumerate(bars.totals):
        axes.text(left[at] + reach * 0.012, at, seconds(total), va="center", fontsize=8)
    axes.set_yticks(places, [short(label) for label in bars.labels])
    axes.tick_params(axis="y", length=0, labelcolor=palette.text)
    axes.set_xlim(0, reach * 1.14)
    axes.set_xlabel(unit)
    axes.grid(visible=True, axis="x")
    axes.invert_yaxis()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=6, fontsize=8, handlelength=1, columnspacing=1.2)


def _row(each: Configuration, names: Sequence[str]) -> list[str]:
    return [each.label, *(or_dash(each.parts.get(name), seconds) for name in names), seconds(sum(each.parts.values()))]
