"""A heat map of one measure over two axes of the grid: each cell has the best configuration of those that are there."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.api.errors import ProblemError
from paceline.api.services.experiments.report.figures.drawing import Canvas, Drawing
from paceline.api.services.experiments.report.figures.figure import ReportFigure
from paceline.api.services.experiments.report.figures.labels import WORLD_SIZE, short
from paceline.api.services.experiments.report.quantities import MEASURES, MEMORY, METRIC, STEP_TIME, THROUGHPUT, UNKNOWN, Measure, plain
from paceline.api.services.experiments.report.report_table import table
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Analysis, Configuration

#: Values of one axis at most: more cells than this nobody reads.
MOST_VALUES = 24
MOST_NUMBERED_CELLS = 120
_LOWER_IS_BETTER = {STEP_TIME.field, MEMORY.field, "exposed_communication", "bubble", "bytes_per_step", "slot_hours", "energy_joules"}


@dataclass(frozen=True)
class HeatMapChoice:
    """The axes and the measure that a reader asks for; None: those that tell most."""

    x: str | None = None
    y: str | None = None
    measure: str | None = None


WHATEVER_TELLS_MOST = HeatMapChoice()


@dataclass(frozen=True)
class HeatMapCells:
    x: str
    y: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Mapping[tuple[str, str], float]  # by column and row
    measure: Measure
    lower_is_better: bool


def figure(subject: ReportSubject, choice: HeatMapChoice = WHATEVER_TELLS_MOST) -> ReportFigure | None:
    """The figure; None where the grid has no two axes with several values. Raises ProblemError for an axis or a measure that is not there."""
    axes = varied(subject.analysis)
    _check(choice, axes)
    chosen = _axes(choice, axes)
    measure = _measure(subject, choice)
    if chosen is None or measure is None:
        return None
    cells = cells_of(subject, *chosen, measure)
    best = "lowest" if cells.lower_is_better else "highest"
    clipped = (
        f" The first {MOST_VALUES} values of an axis are shown."
        if len(axes[cells.x]) > MOST_VALUES or len(axes[cells.y]) > MOST_VALUES
        else ""
    )
    return ReportFigure(
        "heatmap",
        f"{measure.label.capitalize()} over {cells.x} and {cells.y}",
        f"The strongest colour is the {best}, and best. Where several configurations share a cell, the {best} is shown.{clipped}",
        table(measure.label, [f"{cells.y} \\ {cells.x}", *cells.columns], [_row(cells, row) for row in cells.rows]),
        Drawing(functools.partial(draw, cells), 1.5 + 0.36 * max(len(cells.rows), 3)),
    )


def varied(analysis: Analysis) -> dict[str, list[Any]]:
    """The axes with two values or more, each with its values in order."""
    found: dict[str, list[Any]] = {}
    for path in analysis.axes:
        values: list[Any] = []
        for each in analysis.configurations:
            if path in each.values and each.values[path] not in values and not each.baseline and each.refusal is None:
                values.append(each.values[path])
        if len(values) > 1:
            numeric = all(isinstance(value, int | float) for value in values)
            found[path] = sorted(values) if numeric else values
    return found


def cells_of(subject: ReportSubject, x: str, y: str, measure: Measure) -> HeatMapCells:
    lower = is_lower_better(subject, measure)
    values: dict[tuple[str, str], float] = {}
    for each in subject.analysis.configurations:
        found = measure.of(each)
        if found is not None and not each.baseline and x in each.values and y in each.values:
            cell = (plain(each.values[x]), plain(each.values[y]))
            values[cell] = min(found.value, values.get(cell, found.value)) if lower else max(found.value, values.get(cell, found.value))
    axes = varied(subject.analysis)
    columns, rows = ([plain(value) for value in axes[path][:MOST_VALUES]] for path in (x, y))
    return HeatMapCells(x, y, columns, rows, values, measure, lower)


def is_lower_better(subject: ReportSubject, measure: Measure) -> bool:
    return subject.minimizes if measure is METRIC else measure.field in _LOWER_IS_BETTER


def draw(cells: HeatMapCells, canvas: Canvas) -> None:
    from matplotlib.patches import Rectangle

    axes, palette = canvas.axes, canvas.palette
    numbered = len(cells.columns) * len(cells.rows) <= MOST_NUMBERED_CELLS and len(cells.columns) <= 12
    for across, column in enumerate(cells.columns):
        for down, row in enumerate(cells.rows):
            value = cells.values.get((column, row))
            strength = 0.0 if value is None else _strength(cells, value)
            colour = palette.line if value is None else palette.accent
            axes.add_patch(
                Rectangle(
                    (across - 0.48, down - 0.47), 0.96, 0.94, facecolor=colour, alpha=0.35 if value is None else strength, linewidth=0
                )
            )
            if numbered:
                text = UNKNOWN if value is None else cells.measure.show(value)
                axes.text(across, down, text, ha="center", va="center", fontsize=8)
    axes.set_xlim(-0.5, len(cells.columns) - 0.5)
    axes.set_ylim(len(cells.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(cells.columns)), [short(each, 14) for each in cells.columns], rotation=45 if len(cells.columns) > 10 else 0)
    axes.set_yticks(range(len(cells.rows)), [short(each, 24) for each in cells.rows])
    axes.tick_params(length=0, labelcolor=palette.text)
    axes.set_xlabel(cells.x)
    axes.set_ylabel(cells.y)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _strength(cells: HeatMapCells, value: float) -> float:
    """The opacity of a cell: the best has 0.7, so that its number can be read over it in both themes."""
    low, high = min(cells.values.values()), max(cells.values.values())
    share = (value - low) / (high - low) if high > low else 1.0
    return 0.08 + 0.62 * (1 - share if cells.lower_is_better else share)


def _check(choice: HeatMapChoice, axes: Mapping[str, Sequence[Any]]) -> None:
    for name, path in (("x", choice.x), ("y", choice.y)):
        if path is not None and path not in axes:
            raise ProblemError(
                "invalid_parameter", f"{name}={path} is no axis with several values here; take one of: {', '.join(axes) or 'there is none'}"
            )
    known = [measure.field for measure in MEASURES]
    if choice.measure is not None and choice.measure not in known:
        raise ProblemError("invalid_parameter", f"value={choice.measure} is no figure of a configuration; take one of: {', '.join(known)}")


def _axes(choice: HeatMapChoice, axes: Mapping[str, Sequence[Any]]) -> tuple[str, str] | None:
    """(x, y): what was asked for, else the number of ranks and then the axes with most values."""
    order = sorted(axes, key=lambda path: (path != WORLD_SIZE, -len(axes[path])))
    x = choice.x or next((path for path in order if path != choice.y), None)
    y = choice.y or next((path for path in order if path != x), None)
    return None if x is None or y is None or x == y else (x, y)


def _measure(subject: ReportSubject, choice: HeatMapChoice) -> Measure | None:
    """The measure that was asked for; else the metric of a search, and the throughput of a grid."""
    configurations = subject.analysis.configurations
    if choice.measure is not None:
        wanted = next(measure for measure in MEASURES if measure.field == choice.measure)
        return wanted if _known(configurations, wanted) else None
    order = (METRIC, THROUGHPUT, STEP_TIME) if subject.spec.get("search") else (THROUGHPUT, STEP_TIME, METRIC)
    return next((measure for measure in order if _known(configurations, measure)), None)


def _known(configurations: Sequence[Configuration], measure: Measure) -> bool:
    return any(measure.of(each) is not None for each in configurations)


def _row(cells: HeatMapCells, row: str) -> list[str]:
    found = [cells.values.get((column, row)) for column in cells.columns]
    return [row, *(UNKNOWN if value is None else cells.measure.show(value) for value in found)]
