"""Which rank is blamed for a failed script: each kind of failure at each rank, under Paceline and under torchrun.

python -m scripts.bench.culprits [--repeats N] [--json FILE]
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from itertools import product
from pathlib import Path

from paceline.cli.client import RestClient
from scripts.bench.figures import Figure, report
from scripts.bench.first_step import stack
from scripts.bench.scripts import RANKS, ended, under_torchrun
from scripts.steps import say

PROGRAM = Path(__file__).parent / "programs" / "faulty_ddp.py"
FAULTS = (
    *("exception", "assertion", "chained", "group", "cleanup", "early", "message"),
    *("exit", "segfault", "abort", "terminated", "memory", "port"),
)
REPEATS, OF_TORCHRUN = 10, 1
GOAL = 0.99
#: What torchrun's report names as the first failure.
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)


def measure(repeats: int) -> Figure:
    """Return the share of failures in which the rank at fault is named."""
    right: list[bool] = []
    wrong: Counter[str] = Counter()
    theirs: list[bool] = []
    with stack() as client:
        for fault, rank in product(FAULTS, range(RANKS)):
            say(f"{fault} on rank {rank}")
            named = [named_by_paceline(client, fault, rank) for _ in range(repeats)]
            right += [each == rank for each in named]
            wrong.update(f"{fault} on rank {rank}: {each}" for each in named if each != rank)
            theirs += [named_by_torchrun(fault, rank) == rank for _ in range(OF_TORCHRUN)]
    reference = (
        f"of {len(FAULTS)} kinds of failures on {RANKS} ranks; torchrun names it in {sum(theirs)} of {len(theirs)}; goal {GOAL}; "
        f"wrong: {', '.join(f'{each} ({times})' for each, times in wrong.items()) or 'none'}"
    )
    return Figure("culprit_right", "1", sum(right) / len(right), float(min(right)), len(right), reference)


def named_by_paceline(client: RestClient, fault: str, rank: int) -> int | None:
    failure = ended(client, (fault, str(rank)), program=PROGRAM).failure
    return failure.rank if failure is not None else None


def named_by_torchrun(fault: str, rank: int) -> int | None:
    """The rank that torchrun's report calls the root cause; None if it names none, or does not end."""
    try:
        named = _ROOT_CAUSE.search(under_torchrun(fault, str(rank), program=PROGRAM))
    except RuntimeError as error:
        say(f"no report: {error}")
        return None
    return int(named[1]) if named is not None else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"of each failure on each rank (default {REPEATS})")
    parser.add_argument("--json", type=Path, help="write the figure to this file")
    arguments = parser.parse_args()
    report([measure(arguments.repeats)], arguments.json)


if __name__ == "__main__":
    main()
