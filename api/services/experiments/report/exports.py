"""Every format in which a report leaves: which there are, what they need, and how their files are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from paceline.api.errors import ProblemError
from paceline.api.services.experiments.report.figures.catalog import FIGURES, HEAT_MAP, find_figure
from paceline.api.services.experiments.report.figures.drawing import PALETTES, png, svg
from paceline.api.services.experiments.report.figures.heat_map import WHATEVER_TELLS_MOST, HeatMapChoice
from paceline.api.services.experiments.report.markdown import markdown
from paceline.api.services.experiments.report.page import html_page
from paceline.api.services.experiments.report.raw_data import csv_rows, json_document
from paceline.api.services.experiments.report.subject import ReportSubject

ExportFormat = Literal["html", "md", "csv", "json", "svg", "png"]
Theme = Literal["light", "dark"]
MEDIA_TYPES: Mapping[ExportFormat, str] = {
    "html": "text/html; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
}
_DOCUMENTS: Mapping[str, Callable[[ReportSubject], bytes]] = {
    "html": html_page,
    "md": markdown,
    "csv": csv_rows,
    "json": json_document,
}


@dataclass(frozen=True)
class ExportOrder:
    """A report that somebody asks for. `figure`, `theme` and `heat_map` have a meaning for svg and png alone."""

    format: ExportFormat
    figure: str | None = None
    theme: Theme = "light"
    heat_map: HeatMapChoice = WHATEVER_TELLS_MOST


def check_order(order: ExportOrder) -> None:
    """Raise ProblemError for an order that cannot be carried out, whatever the experiment."""
    is_picture = order.format in ("svg", "png")
    if is_picture and order.figure is None:
        raise ProblemError("invalid_parameter", f"format={order.format} is one figure; say which: figure={', '.join(FIGURES)}")
    if not is_picture and order.figure is not None:
        raise ProblemError("invalid_parameter", f"figure={order.figure} goes with format=svg or png; format={order.format} has them all")
    if order.figure is not None and order.figure not in FIGURES:
        raise ProblemError("invalid_parameter", f"figure={order.figure} is not known; take one of: {', '.join(FIGURES)}")
    if order.heat_map != WHATEVER_TELLS_MOST and order.figure != HEAT_MAP:
        raise ProblemError("invalid_parameter", f"x, y and value choose what figure={HEAT_MAP} shows, and go with it alone")


def export(subject: ReportSubject, order: ExportOrder) -> bytes:
    """The file. Raises ProblemError where a figure cannot be drawn or has nothing to show."""
    if order.format in _DOCUMENTS:
        return _DOCUMENTS[order.format](subject)
    drawing = find_figure(subject, order.figure or "", order.heat_map).drawing
    return (svg if order.format == "svg" else png)(drawing, PALETTES[order.theme])


def file_name(experiment: str, order: ExportOrder) -> str:
    """A name that every file system takes."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", experiment).strip("-.") or "experiment"
    return f"{words}-{order.figure or 'report'}.{order.format}"
