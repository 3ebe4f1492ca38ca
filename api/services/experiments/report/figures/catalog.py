"""Every figure of a report, by the name under which it is exported."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from paceline.api.errors import ProblemError
from paceline.api.services.experiments.report.figures import heat_map, loss, pareto, scaling, step_time
from paceline.api.services.experiments.report.figures.bars import bar_figure
from paceline.api.services.experiments.report.figures.figure import ReportFigure
from paceline.api.services.experiments.report.figures.heat_map import HeatMapChoice
from paceline.api.services.experiments.report.quantities import MEMORY, THROUGHPUT
from paceline.api.services.experiments.report.subject import ReportSubject

HEAT_MAP = "heatmap"
#: In the order of the report.
FIGURES: Mapping[str, Callable[[ReportSubject], ReportFigure | None]] = {
    "scaling": scaling.figure,
    "throughput": functools.partial(bar_figure, name="throughput", title="Throughput", measure=THROUGHPUT, descending=True),
    "step_time": step_time.figure,
    "memory": functools.partial(bar_figure, name="memory", title="Peak memory of the fullest rank", measure=MEMORY, descending=False),
    "loss": loss.figure,
    HEAT_MAP: heat_map.figure,
    "pareto": pareto.figure,
}


def all_figures(subject: ReportSubject) -> list[ReportFigure]:
    """Every figure for which there is something to show."""
    return [found for build in FIGURES.values() if (found := build(subject)) is not None]


def find_figure(subject: ReportSubject, name: str, choice: HeatMapChoice) -> ReportFigure:
    """The figure of this name. Raises ProblemError where there is none, or nothing to show in it."""
    if name not in FIGURES:
        raise ProblemError("invalid_parameter", f"figure={name} is not known; take one of: {', '.join(FIGURES)}")
    found = heat_map.figure(subject, choice) if name == HEAT_MAP else FIGURES[name](subject)
    if found is None:
        there = [each.name for each in all_figures(subject)]
        raise ProblemError(
            "nothing_to_show", f"there is nothing to show in figure={name} yet; these have something: {', '.join(there) or 'none so far'}"
        )
    return found
