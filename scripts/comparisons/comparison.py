"""An experiment run to its end by a script: its table on the terminal, and its report as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.cli.answers import parsed
from paceline.cli.api_types import Experiment, ExperimentAnalysis
from paceline.cli.client import RestClient
from paceline.cli.errors import UsageProblem
from paceline.cli.experiment_exports import download_export
from paceline.cli.experiment_progress import follow_experiment
from paceline.cli.render.experiment_tables import counts_text, report
from paceline.cli.render.output import note, print_line
from scripts.comparisons.coordinators import Place
from scripts.comparisons.grids import Document, Unfit, fitting

#: What is left in the folder, by format.
FILES = {"html": "report.html", "md": "report.md", "csv": "results.csv", "json": "results.json"}
TABLE = "table.txt"


def compare(place: Place, document: Document, folder: Path) -> int:
    """Run the experiment to its end; print its table and write the report's files. Returns the exit code: 1 where no trial completed.

    Numbers of ranks that there are no slots for are rows with the reason. Raises UsageProblem where none fits."""
    wanted, unfit = fitting(document, place.slots)
    if not wanted["world_sizes"]:
        raise UsageProblem(f"no number of ranks fits: {unfit[0].why}", "give 1 among the numbers, or name a larger cluster with --url")
    ended = run_to_end(place, wanted)
    if ended.trials is None or not ended.trials.completed:
        note(f"no trial completed: {counts_text(ended.trials) if ended.trials else ended.state}")
        return 1
    found = parsed(place.client.create(f"/experiments/{ended.id}/analyze", None), ExperimentAnalysis)
    text = "\n".join([report(found.analysis, "loss"), *map(unfit_line, unfit)])
    print_line(text)
    write_files(place.client, ended.id, text, folder)
    return 0


def run_to_end(place: Place, document: Document) -> Experiment:
    """Post the experiment and follow it. Of one of that name that was posted before, only what is missing runs."""
    posted = parsed(place.client.create("/experiments", document), Experiment)
    ends = "ends it" if place.is_private else f"stops following it; paceline experiment cancel {posted.name} ends it"
    note(f"{posted.name}: {counts_text(posted.trials) if posted.trials else posted.state}; Ctrl-C {ends}")
    ended: Any = follow_experiment(place.client, posted.id)
    return parsed(ended, Experiment)


def unfit_line(row: Unfit) -> str:
    return f"  {row.ranks} ranks: not run, {row.why}"


def write_files(client: RestClient, experiment_id: str, table: str, folder: Path, formats: Sequence[str] = tuple(FILES)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TABLE).write_text(f"{table}\n")
    for form in formats:
        download_export(client, experiment_id, folder / FILES[form], form)
    note(f"written to {folder}: {', '.join([TABLE, *(FILES[form] for form in formats)])}")
