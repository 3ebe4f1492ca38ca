"""What parallelism costs: our jobs beside bare torch scripts and beside perfect scaling; the plan that auto chooses; the memory estimate.

A byte-level GPT (4 layers, d=256, context 128) on two ranks with one thread each, so that two cores are what a run wants. Loops that are
compared take turns in the same processes; a figure is the median of the ratios of single rounds. Saves written behind the steps
are compared with saves that training waits for, and those that go to an object store with those on the node's disk.

    python -m scripts.bench.parallelism [--quick] [--only PART ...] [--json FILE]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from scripts.bench.figures import Figure, report
from scripts.bench.parallel import async_save, contests, memory, plans, stored_save
from scripts.steps import say

ROUNDS, QUICK_ROUNDS = 20, 4
SCREENING_ROUNDS, QUICK_SCREENING_ROUNDS = 5, 2
SAVING_ROUNDS, QUICK_SAVING_ROUNDS = 5, 1

Part = Callable[[], list[Figure]]


def parts(*, quick: bool) -> dict[str, Part]:
    rounds, screening, saving = (
        (QUICK_ROUNDS, QUICK_SCREENING_ROUNDS, QUICK_SAVING_ROUNDS) if quick else (ROUNDS, SCREENING_ROUNDS, SAVING_ROUNDS)
    )
    beside_scripts: dict[str, Part] = {name: partial(contests.measure, name, rounds) for name in contests.CONTESTS}
    return beside_scripts | {
        "auto": partial(plans.measure, screening, ("usual",) if quick else tuple(plans.SIZES)),
        "async_save": partial(async_save.measure, saving),
        "stored_save": partial(stored_save.measure, saving),
        "memory": partial(memory.measure, memory.QUICK if quick else None),
    }


def measure(names: Sequence[str], *, quick: bool) -> list[Figure]:
    figures = []
    for name, part in parts(quick=quick).items():
        if name in names:
            say(name)
            figures += part()
    return figures


def main() -> None:
    names = list(parts(quick=True))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds instead of {ROUNDS}, one size, fewer strategies")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART", help=f"of {', '.join(names)}")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    report(measure(arguments.only, quick=arguments.quick), arguments.json)


if __name__ == "__main__":
    main()
