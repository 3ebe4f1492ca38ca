"""Experiments: what their scheduling costs, how soon they are analyzed, how far off the cost model is, what a search saves.

Each part is a module with a command line of its own: those of `trials/`, and the `experiment_*.py` beside this file. Here they run one after the
other, each in a process of its own.

    python -m scripts.bench.experiments [--quick] [--only PART ...] [--json FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.bench.parts import Part, run_parts

FACES = "experiment_"
PARTS = {
    "overhead": Part("scripts.bench.trials.overhead", quick=("--rounds", "1")),
    "analyze": Part("scripts.bench.trials.analyze", quick=("--trials", "100")),
} | {path.stem.removeprefix(FACES): Part(f"scripts.bench.{path.stem}") for path in sorted(Path(__file__).parent.glob(f"{FACES}*.py"))}


if __name__ == "__main__":
    sys.exit(run_parts(PARTS, __doc__, "fewer of everything, where a part has a short form"))
