"""What the coordinator bears: a flood of output, a thousand agents, jobs by the thousand, long histories, hostile requests.

Each part is a module of `edges/` with a command line of its own; here they run one after the other, each in a process of its own.

    python -m scripts.bench.edge [--quick] [--only PART ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.figures import Figure, report
from scripts.steps import ROOT, say


@dataclass(frozen=True)
class Part:
    """The arguments of one module of `edges/`."""

    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


PARTS = {
    "placement": Part(),
    "control": Part(),
    "agents": Part(full=("--agents", "1000", "--seconds", "60"), quick=("--agents", "200", "--seconds", "10")),
    "uploads": Part(full=("--seconds", "120"), quick=("--seconds", "10", "--agents", "200", "--databases", "sqlite")),
    "jobs": Part(full=("--jobs", "3000"), quick=("--jobs", "200")),
    "watchers": Part(full=("--watchers", "500"), quick=("--watchers", "50")),
    "flood": Part(full=("--seconds", "30"), quick=("--seconds", "8")),
    "hostile": Part(),
    "retention": Part(quick=("--days", "3")),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="minutes instead of a quarter of an hour: fewer of everything")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    broken: list[str] = []
    for name in arguments.only:
        say(name)
        found = measure(name, quick=arguments.quick)
        figures += found or []
        broken += [] if found is not None else [name]
    report(figures, arguments.json)
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def measure(name: str, *, quick: bool) -> list[Figure] | None:
    """The figures of one part; None when it broke."""
    part = PARTS[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"scripts.bench.edges.{name}", *(part.quick if quick else part.full), "--json", str(file)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0 or not file.exists():
            return None
        return [Figure(**figure) for figure in json.loads(file.read_text())]


if __name__ == "__main__":
    sys.exit(main())
