"""Losses over the samples that were seen: one line for each configuration, single processes dashed."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.api.services.experiments.report.figures.drawing import Canvas, Drawing
from paceline.api.services.experiments.report.figures.figure import ReportFigure
from paceline.api.services.experiments.report.figures.labels import short
from paceline.api.services.experiments.report.quantities import UNKNOWN, digits, seconds
from paceline.api.services.experiments.report.report_table import table
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Analysis, Series

MOST_LINES = 8


@dataclass(frozen=True)
class LossLine:
    label: str
    reference: bool
    samples: Sequence[int]
    losses: Sequence[float]  # NaN: a gap


def figure(subject: ReportSubject) -> ReportFigure | None:
    """The figure; None where no loss is known at two points."""
    chosen = [each for each in subject.analysis.series if len(_finite(each)) > 1]
    if not chosen:
        return None
    lines = [_line(subject.analysis, each) for each in drawn_first(subject.analysis, chosen)[:MOST_LINES]]
    by_samples = any(line.samples for line in lines)
    only = (
        f" {MOST_LINES} of {len(chosen)} are drawn: the recommended one, single processes, then those that ended lowest."
        if len(chosen) > MOST_LINES
        else ""
    )
    references = " Single processes are dashed." if any(line.reference for line in lines) else ""
    return ReportFigure(
        "loss",
        "Loss by samples" if by_samples else "Loss by steps",
        f"Training loss over the {'samples that were seen' if by_samples else 'steps'}, of one trial of each configuration.{references}{only}",
        table(
            "Losses",
            ["configuration", "trial", "first", "lowest", "last", "samples", "training time"],
            [_row(subject.analysis, each) for each in chosen],
        ),
        Drawing(functools.partial(draw, lines, by_samples), 4.2),
    )


def drawn_first(analysis: Analysis, chosen: Sequence[Series]) -> list[Series]:
    """The series in the order in which a crowded figure takes them."""
    baselines = {each.index for each in analysis.configurations if each.baseline}

    def order(each: Series) -> tuple[bool, bool, float]:
        return each.configuration != analysis.best, each.configuration not in baselines, _finite(each)[-1]

    return sorted(chosen, key=order)


def draw(lines: Sequence[LossLine], by_samples: bool, canvas: Canvas) -> None:
    axes, palette = canvas.axes, canvas.palette
    for at, line in enumerate(lines):
        style: str | tuple[int, tuple[int, int]] = (0, (4, 2)) if line.reference else "-" if at < len(palette.series) else (0, (1, 1))
        axes.plot(line.samples, line.losses, color=palette.colour(at), linestyle=style, linewidth=1.4, label=short(line.label))
    axes.set_xlabel("samples" if by_samples else "step")
    axes.set_ylabel("loss")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(visible=True, axis="y")
    axes.legend(loc="upper right", fontsize=8)


def _line(analysis: Analysis, each: Series) -> LossLine:
    found = next(one for one in analysis.configurations if one.index == each.configuration)
    return LossLine(found.label, found.baseline, each.samples or each.steps, [math.nan if loss is None else loss for loss in each.losses])


def _finite(each: Series) -> list[float]:
    return [loss for loss in each.losses if loss is not None and math.isfinite(loss)]


def _row(analysis: Analysis, each: Series) -> list[str]:
    losses = _finite(each)
    label = next((one.label for one in analysis.configurations if one.index == each.configuration), UNKNOWN)
    samples = f"{each.samples[-1]:,}" if each.samples else UNKNOWN
    return [
        label,
        str(each.trial),
        *(digits(value) for value in (losses[0], min(losses), losses[-1])),
        samples,
        seconds(each.seconds[-1]) if each.seconds else UNKNOWN,
    ]
