"""The files that an experiment's newest analysis is written to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from paceline.cli.errors import OutputError, UsageProblem

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

#: The ends of a file's name that say what it is to hold; the last two hold one figure.
FORMATS = ("html", "md", "csv", "json", "svg", "png")
OF_FIGURES = ("svg", "png")
#: The figures of a report, by the names that the coordinator knows.
FIGURES = ("scaling", "throughput", "step_time", "memory", "loss", "heatmap", "pareto")


def export_format(target: Path, given: str | None, figure: str | None) -> str:
    """Return the format of an export: the given one, or what the name of `target` ends in. Raises UsageProblem where that is none."""
    chosen = given or target.suffix.removeprefix(".")
    if chosen not in FORMATS:
        raise UsageProblem(f"{chosen or target.name!r} is no format of a report", f"use one of {', '.join(FORMATS)}")
    if chosen in OF_FIGURES and figure is None:
        raise UsageProblem(f"{chosen} is the format of one figure, and none is named", f"name one with --figure: {', '.join(FIGURES)}")
    return chosen


@dataclass(frozen=True)
class ExportedFigure:
    """The figure of an svg or png. `x`, `y` and `value` are of a heat map: its axes and its measure; None: those that tell most."""

    name: str | None = None
    x: str | None = None
    y: str | None = None
    value: str | None = None

    @property
    def query(self) -> dict[str, str]:
        asked = {"figure": self.name, "x": self.x, "y": self.y, "value": self.value}
        return {name: value for name, value in asked.items() if value is not None}


NO_FIGURE = ExportedFigure()


def download_export(client: RestClient, experiment_id: str, target: Path, form: str, figure: ExportedFigure = NO_FIGURE) -> int:
    """Write one export to the file `target`. Returns its bytes. Raises OutputError where the file cannot be written."""
    query = urlencode({"format": form, **figure.query}, quote_via=quote)
    try:
        return client.download(f"/experiments/{experiment_id}/export?{query}", target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror}", "name another file") from error
