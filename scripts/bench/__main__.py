"""Runs every benchmark beside this file, prints one table, and with --json FILE writes all figures.

    python -m scripts.bench [--json FILE] [NAME ...]

A benchmark is a module with a command line of its own: it takes `--json FILE` and writes a list of
`{figure, unit, median, p95, n, reference}`. None fails on an absolute time; one that breaks makes this exit 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.steps import ROOT, say

FOLDER = Path(__file__).parent
#: What benchmarks share or start.
NOT_BENCHMARKS = {"__init__", "__main__", "figures", "parts", "stored_experiment", "torchrun_script"}
#: Parts of `experiments.py`.
PARTS = "experiment_"
#: Benchmarks that take an hour in full, with the arguments of their short form.
SHORTENED = {"dashboard": ["--quick"], "recovery": ["--quick"], "edge": ["--quick"], "communication": ["--quick"]}
COLUMNS = ("figure", "unit", "median", "p95", "n", "reference")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    figures: list[dict[str, Any]] = []
    broken: list[str] = []
    for name in arguments.names or benchmarks():
        results = measure(name)
        figures += results or []
        broken += [] if results is not None else [name]
    print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def benchmarks() -> list[str]:
    files = [path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_BENCHMARKS and not path.stem.startswith(PARTS)]
    return sorted([*files, *(path.parent.name for path in FOLDER.glob("*/__main__.py"))])


def measure(name: str) -> list[dict[str, Any]] | None:
    """The figures of one benchmark; None when it broke."""
    say(name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        done = subprocess.run(
            [sys.executable, "-m", f"scripts.bench.{name}", *SHORTENED.get(name, []), "--json", str(file)], cwd=ROOT, check=False
        )
        if done.returncode != 0 or not file.exists():
            return None
        figures: list[dict[str, Any]] = json.loads(file.read_text())
        return figures


def table(figures: list[dict[str, Any]]) -> str:
    rows = [COLUMNS, *(tuple(_cell(figure.get(column)) for column in COLUMNS) for figure in figures)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return "-" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
