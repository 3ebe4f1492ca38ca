"""A benchmark that consists of modules with command lines of their own, which run one after the other, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.figures import Figure, report
from scripts.steps import ROOT, say


@dataclass(frozen=True)
class Part:
    """A module, and its arguments in full and in short."""

    module: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


def run_parts(parts: Mapping[str, Part], description: str | None, quick_means: str) -> int:
    """The command line of such a benchmark. Returns its exit code: 1 where a part broke."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick_means)
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts), metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    broken: list[str] = []
    for name in arguments.only:
        say(name)
        found = measure(parts[name], quick=arguments.quick)
        figures += found or []
        broken += [] if found is not None else [name]
    report(figures, arguments.json)
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def measure(part: Part, *, quick: bool) -> list[Figure] | None:
    """The figures of one part; None when it broke."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", part.module, *(part.quick if quick else part.full), "--json", str(file)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0 or not file.exists():
            return None
        return [Figure(**figure) for figure in json.loads(file.read_text())]
