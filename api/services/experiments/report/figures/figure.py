"""A figure of a report: a name by which it is exported, what it shows in a sentence, its table, and how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.api.services.experiments.report.figures.drawing import Drawing
from paceline.api.services.experiments.report.report_table import ReportTable


@dataclass(frozen=True)
class ReportFigure:
    name: str
    title: str
    caption: str
    table: ReportTable
    drawing: Drawing
