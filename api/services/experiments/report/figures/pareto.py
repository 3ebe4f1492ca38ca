"""Speed against peak memory, or against the metric where memory is unknown: the configurations that no other beats are joined."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.api.services.experiments.report.figures.drawing import Canvas, Drawing
from paceline.api.services.experiments.report.figures.figure import ReportFigure
from paceline.api.services.experiments.report.figures.labels import short
from paceline.api.services.experiments.report.quantities import MEMORY, METRIC, THROUGHPUT, Measure, or_dash
from paceline.api.services.experiments.report.report_table import ReportTable
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Configuration

MOST_LABELS = 8


@dataclass(frozen=True)
class ParetoPoint:
    label: str
    speed: float
    cost: float  # of memory, or the metric
    front: bool
    chosen: bool


def figure(subject: ReportSubject) -> ReportFigure | None:
    """The figure; None where fewer than two configurations have both measures."""
    configurations = subject.analysis.configurations
    for cost in (MEMORY, METRIC):
        points = [point for each in configurations if (point := _point(each, cost, subject.analysis.best)) is not None]
        if len(points) > 1:
            name = subject.metric if cost is METRIC else cost.label
            return ReportFigure(
                "pareto",
                f"Speed and {name}",
                f"No other configuration is faster, smaller in memory and better in {subject.metric} at once than the filled ones. "
                "Further right is faster.",
                _table(subject, cost, name),
                Drawing(functools.partial(draw, points, cost, name), 4.2),
            )
    return None


def _point(each: Configuration, cost: Measure, best: int | None) -> ParetoPoint | None:
    speed, other = THROUGHPUT.of(each), cost.of(each)
    if speed is None or other is None:
        return None
    return ParetoPoint(each.label, speed.value, other.value, each.pareto, each.index == best)


def draw(points: Sequence[ParetoPoint], cost: Measure, name: str, canvas: Canvas) -> None:
    axes, palette = canvas.axes, canvas.palette
    unit, scale = cost.on_axis(max(point.cost for point in points))
    behind = [point for point in points if not point.front]
    front = sorted((point for point in points if point.front), key=lambda point: point.speed)
    axes.scatter([each.speed for each in behind], [each.cost * scale for each in behind], s=34, facecolors=palette.surface,
                 edgecolors=palette.neutral, linewidths=1.2, label="beaten by another")  # fmt: skip
    edge = staircase(front)
    axes.plot([each.speed for each in edge], [each.cost * scale for each in edge], color=palette.series_1, linewidth=1, alpha=0.6)
    axes.scatter(
        [each.speed for each in front],
        [each.cost * scale for each in front],
        s=40,
        color=palette.series_1,
        label="on the front",
        zorder=3,
    )
    for each in points:
        if each.chosen:
            axes.scatter(
                [each.speed],
                [each.cost * scale],
                s=130,
                facecolors="none",
                edgecolors=palette.series_2,
                linewidths=1.6,
                label="recommended",
            )
    _label(_labelled(front), scale, canvas)
    axes.margins(0.12, 0.16)
    axes.set_xlabel(THROUGHPUT.axis)
    axes.set_ylabel(f"{name}, {unit}" if unit else name)
    axes.grid(visible=True)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)


def _label(front: Sequence[ParetoPoint], scale: float, canvas: Canvas) -> None:
    """Write labels towards the middle; below its point where the point before, which is near, has its own above."""
    middle = sum(canvas.axes.get_xlim()) / 2
    near = (canvas.axes.get_xlim()[1] - canvas.axes.get_xlim()[0]) / 6
    is_above = False
    for at, each in enumerate(front):
        is_above = not is_above if at and each.speed - front[at - 1].speed < near else True
        left = each.speed > middle
        place = (-8 if left else 8, 6 if is_above else -13)
        canvas.axes.annotate(
            short(each.label, 34),
            (each.speed, each.cost * scale),
            xytext=place,
            textcoords="offset points",
            ha="right" if left else "left",
            fontsize=8,
        )


def staircase(front: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The points of the front that no other beats in the two measures that are drawn, the slowest first."""
    found: list[ParetoPoint] = []
    for each in sorted(front, key=lambda point: (-point.speed, point.cost)):
        if not found or each.cost < found[-1].cost:
            found.append(each)
    return found[::-1]


def _labelled(front: Sequence[ParetoPoint]) -> Sequence[ParetoPoint]:
    """The points of the front that get a label: its ends, and others evenly between."""
    if len(front) <= MOST_LABELS:
        return front
    return [front[round(at * (len(front) - 1) / (MOST_LABELS - 1))] for at in range(MOST_LABELS)]


def _table(subject: ReportSubject, cost: Measure, name: str) -> ReportTable:
    found = [(each, THROUGHPUT.of(each), cost.of(each), METRIC.of(each)) for each in subject.analysis.configurations]
    known = sorted((row for row in found if row[1] and row[2]), key=lambda row: (not row[0].pareto, -(row[1].value if row[1] else 0)))
    rows = [
        [
            each.label,
            THROUGHPUT.show(speed.value) if speed else "–",
            cost.show(other.value) if other else "–",
            or_dash(best.value if best else None),
            "on the front" if each.pareto else "beaten by another",
        ]
        for each, speed, other, best in known
    ]
    return ReportTable("Pareto front", ["configuration", THROUGHPUT.label, name, subject.metric, ""], rows, frozenset((1, 2, 3)))
