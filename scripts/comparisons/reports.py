"""Write the reports of the example experiments to docs/experiments, as this machine produces them.

    python -m scripts.comparisons.reports [--url URL] [--api-key KEY] [NAME ...]

Of an experiment that the coordinator has run already only the report is written. For figures that are to be believed the machine has nothing else to do.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from paceline.cli.documents import read_spec
from paceline.cli.errors import CliError
from paceline.cli.experiment_exports import ExportedFigure, download_export
from paceline.cli.render.output import note
from scripts.comparisons.comparison import run_to_end
from scripts.comparisons.coordinators import Place, place
from scripts.comparisons.options import run_main
from scripts.steps import ROOT

EXAMPLES, FOLDER = ROOT / "examples" / "experiments", ROOT / "docs" / "experiments"
#: The one figure of each report that stands beside it.
FIGURES = {"ddp_vs_fsdp": "throughput", "scaling_gpt": "scaling", "sweep_lr": "loss", "mnist_twins": "loss"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; default: all")
    parser.add_argument("--url", help="coordinator; default: the configured one, else one of its own on this machine")
    parser.add_argument("--api-key", help="in place of the stored one")
    options = parser.parse_args()
    if unknown := set(options.names) - set(FIGURES):
        parser.error(f"there is no example {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    FOLDER.mkdir(exist_ok=True)
    with place(options.url, options.api_key) as here:
        for name in options.names or FIGURES:
            write_report(here, name, FOLDER)
    return 0


def write_report(here: Place, name: str, folder: Path) -> None:
    """Run the example, and write its report, its table and its figure. Raises CliError where a trial did not complete."""
    ended = run_to_end(here, read_spec(str(EXAMPLES / f"{name}.yaml"), []))
    if ended.trials is None or ended.trials.failed or ended.trials.cancelled:
        raise CliError(f"{name}: not every trial completed, so its report is not written", f"paceline experiment trials {ended.name}")
    here.client.create(f"/experiments/{ended.id}/analyze", None)
    for form in ("md", "csv"):
        download_export(here.client, ended.id, folder / f"{name}.{form}", form)
    download_export(here.client, ended.id, folder / f"{name}.svg", "svg", ExportedFigure(FIGURES[name]))
    note(f"written: {folder / name}.md, .csv, .svg")


if __name__ == "__main__":
    sys.exit(run_main(main))
