"""Sixty faults in thirty minutes on a real stack, then the same job left alone: what was kept of the throughput, and whether anything was lost.

    python -m scripts.chaos [--seed N] [--faults 60] [--minutes 30] [--every STEPS] [--json FILE]

The schedule is a function of the seed and of how many steps lie between two faults, both of which are printed.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from scripts.bench.figures import report
from scripts.chaos.campaign import FAULTS, SECONDS_BETWEEN, chaos, figures
from scripts.chaos.verdict import judge
from scripts.faults.rig import end_in_order
from scripts.steps import say


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a new one")
    parser.add_argument("--faults", type=int, default=FAULTS)
    parser.add_argument("--minutes", type=float, default=FAULTS * SECONDS_BETWEEN / 60, help="for all faults together")
    parser.add_argument("--every", type=int, metavar="STEPS", help="between two faults; default: as many as fit")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    end_in_order()
    run, control = chaos(arguments.seed, arguments.faults, arguments.every, 60 * arguments.minutes / arguments.faults)
    verdict = judge(run, control)
    report(figures(run, verdict), arguments.json)
    say(
        f"curve: {verdict.compared} steps compared with the control's, "
        + ("equal to the last bit" if verdict.first_difference is None else "NOT equal")
    )
    for text in verdict.broken:
        say(f"NOT KEPT: {text}")
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
