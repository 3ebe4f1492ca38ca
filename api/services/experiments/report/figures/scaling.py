"""Scaling efficiency over the number of ranks: measured with intervals, the ideal, and what the cost model predicts beyond."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.api.services.experiments.report.figures.drawing import MARKERS, Canvas, Drawing
from paceline.api.services.experiments.report.figures.figure import ReportFigure
from paceline.api.services.experiments.report.figures.labels import SeriesKey, series_key, series_label
from paceline.api.services.experiments.report.quantities import UNKNOWN, digits, or_dash, percent, times
from paceline.api.services.experiments.report.report_table import ReportTable
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Analysis, Configuration, Estimate, Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 8
#: Between the lines: at most so many powers of two, and so much of the axis.
_ASIDE, _SHARE_ASIDE = 0.07, 0.015
_COLUMNS = ("series", "ranks", "speed-up", "efficiency", "low", "high", "source")


@dataclass(frozen=True)
class ScalingLine:
    label: str
    measured: Sequence[tuple[int, Estimate]]  # ranks and efficiency
    predicted: Sequence[tuple[int, float]]


def figure(subject: ReportSubject) -> ReportFigure | None:
    """The figure; None where no configuration has an efficiency beyond one rank."""
    lines = lines_of(subject.analysis)
    if not lines:
        return None
    kind = "The work of a rank stays the same" if subject.scaling == "weak" else "The work stays the same"
    beyond = " Dashed lines are predictions of the cost model, not measurements." if any(line.predicted for line in lines) else ""
    only = f" The first {MOST_LINES} of {len(lines)} series are drawn; the table has all." if len(lines) > MOST_LINES else ""
    return ReportFigure(
        "scaling",
        "Scaling efficiency",
        f"Speed-up over the single process, as a share of the number of ranks. {kind} as ranks are added ({subject.scaling} scaling); "
        f"whiskers are 95 % bootstrap intervals.{beyond}{only}",
        ReportTable("Scaling efficiency", _COLUMNS, _rows(subject.analysis), frozenset(range(1, len(_COLUMNS) - 1))),
        Drawing(functools.partial(draw, lines[:MOST_LINES]), 4.3),
    )


def lines_of(analysis: Analysis) -> list[ScalingLine]:
    """One line for each series of configurations that are equal in all but the number of ranks."""
    by_index = {each.index: each for each in analysis.configurations}
    groups: dict[SeriesKey, list[Configuration]] = {}
    for each in analysis.configurations:
        if each.efficiency is not None and not each.baseline:
            groups.setdefault(series_key(each), []).append(each)
    found = []
    for key, group in groups.items():
        if max(each.world_size for each in group) > 1:
            widest = max(group, key=lambda each: each.world_size)
            points = sorted((each.world_size, each.efficiency) for each in group if each.efficiency is not None)
            found.append(ScalingLine(series_label(widest), points, _predicted(analysis, by_index, key)))
    return found


def _predicted(analysis: Analysis, by_index: Mapping[int, Configuration], key: SeriesKey) -> list[tuple[int, float]]:
    mine = [each for each in analysis.predictions if each.configuration in by_index and series_key(by_index[each.configuration]) == key]
    return sorted((each.ranks, each.efficiency) for each in mine)


def draw(lines: Sequence[ScalingLine], canvas: Canvas) -> None:
    """Draw the lines, each a little aside of the others, so that their whiskers can be told apart."""
    widest = max(rank for line in lines for rank, _ in (*line.measured, *line.predicted))
    aside = min(_ASIDE, _SHARE_ASIDE * math.log2(widest))
    for at, line in enumerate(lines):
        _draw_line(line, at, 2 ** ((at - (len(lines) - 1) / 2) * aside), canvas)
    canvas.axes.axhline(100, color=canvas.palette.neutral, linewidth=1.2, linestyle=":", label="ideal")
    _finish(lines, canvas.axes)


def _draw_line(line: ScalingLine, at: int, aside: float, canvas: Canvas) -> None:
    axes, colour, marker = canvas.axes, canvas.palette.colour(at), MARKERS[at % len(MARKERS)]
    ranks = [rank * aside for rank, _ in line.measured]
    values = [100 * value.value for _, value in line.measured]
    if line.measured[0][0] > 1:
        axes.plot([1, ranks[0]], [100, values[0]], color=colour, linewidth=1.8)  # one rank has all of it, by definition
    axes.plot(ranks, values, color=colour, marker=marker, markersize=5, label=line.label)
    for rank, (_, value) in zip(ranks, line.measured, strict=True):
        if value.low is not None and value.high is not None:
            spread = [[100 * (value.value - value.low)], [100 * (value.high - value.value)]]
            axes.errorbar([rank], [100 * value.value], yerr=spread, color=colour, capsize=3, linewidth=1)
    beyond = [(rank * aside, 100 * value) for rank, value in line.predicted if rank * aside > ranks[-1]]
    if beyond:
        across, up = zip(*[(ranks[-1], values[-1]), *beyond], strict=True)
        axes.plot(across, up, color=colour, linestyle=(0, (4, 3)), linewidth=1.2)
        axes.plot(across[1:], up[1:], color=colour, linestyle="none", marker=marker, markersize=4, markerfacecolor=canvas.palette.surface)


def _finish(lines: Sequence[ScalingLine], axes: Axes) -> None:
    from matplotlib.ticker import NullLocator

    ranks = {1, *(rank for line in lines for rank, _ in line.measured), *(rank for line in lines for rank, _ in line.predicted)}
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ranks), [f"{rank:,}" for rank in sorted(ranks)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("ranks")
    axes.set_ylabel("percent of ideal")
    highest = max(100 * value.value for line in lines for _, value in line.measured)
    axes.set_ylim(0, max(112.0, min(axes.get_ylim()[1], 1.5 * highest)))  # a wild interval is cut: the table has it
    axes.grid(visible=True, axis="y")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)


def _rows(analysis: Analysis) -> list[list[str]]:
    rows = [
        (series_label(each), each.world_size, _measured_row(each))
        for each in analysis.configurations
        if each.efficiency is not None and not each.baseline
    ]
    by_index = {each.index: each for each in analysis.configurations}
    rows += [
        (
            series_label(by_index[each.configuration]),
            each.ranks,
            _predicted_row(by_index[each.configuration], analysis, each),
        )
        for each in analysis.predictions
        if each.configuration in by_index
    ]
    return [row for _, _, row in sorted(rows, key=lambda found: found[:2])]


def _measured_row(each: Configuration) -> list[str]:
    found = each.efficiency
    assert found is not None, "only configurations with an efficiency have a row"
    speedup = UNKNOWN if each.speedup is None else times(each.speedup.value)
    return [
        series_label(each),
        f"{each.world_size:,}",
        speedup,
        percent(found.value),
        or_dash(found.low, percent),
        or_dash(found.high, percent),
        f"measured, {found.count} trials" if found.count != 1 else "measured, 1 trial",
    ]


def _predicted_row(each: Configuration, analysis: Analysis, prediction: Prediction) -> list[str]:
    efficiency = percent(prediction.efficiency)
    speedup = f"{digits(prediction.efficiency * prediction.ranks)}×"
    return [series_label(each), f"{prediction.ranks:,}", speedup, efficiency, UNKNOWN, UNKNOWN, "predicted"]
