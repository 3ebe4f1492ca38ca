"""The files that an experiment's newest analysis is written to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

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


def download_export(client: RestClient, experiment_id: str, target: Path, form: str, figure: str | None = None) -> int:
    """Write one export to the file `target`. Returns its bytes. Raises OutputError where the file cannot be written."""
    of_figure = f"&figure={quote(figure, safe='')}" if figure else ""
    try:
        return client.download(f"/experiments/{experiment_id}/export?format={form}{of_figure}", target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror}", "name another file") from error
