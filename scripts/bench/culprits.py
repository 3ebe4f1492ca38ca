"""Which rank is blamed for a failed script: each kind of failure at each rank, under Paceline and under torchrun. A NaN is no rank's: there the job's
end is to say so.

python -m scripts.bench.culprits [--repeats N] [--only FAULT ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from paceline.cli.client import RestClient
from scripts.bench.figures import Figure, report
from scripts.bench.first_step import stack
from scripts.bench.scripts import NO_RESTART, RANKS, submitted, under_torchrun, wait_for_end
from scripts.steps import say

PROGRAM = Path(__file__).parent / "programs" / "faulty_ddp.py"
NAN = "nan"
FAULTS = (
    *("exception", "assertion", "chained", "group", "cleanup", "early", "message", "import"),
    *("exit", "segfault", "abort", "terminated", "killed", "memory", "port", "loop", "order", "shapes", NAN),
)
#: What the user has to have asked for, so that a program which would go on for ever is ended.
ASKED: dict[str, dict[str, Any]] = {"loop": {"hang_seconds": 10}, "order": {"hang_seconds": 10}, NAN: {"on_nan": "stop"}}
#: Calls that do not fit each other: either of two ranks may be named.
MUTUAL = frozenset({"order", "shapes"})
#: torchrun waits for ever where ranks hang.
TORCHRUN_S = 60.0
REPEATS, OF_TORCHRUN = 10, 1
GOAL = 0.99
#: What torchrun's report names as the first failure.
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)


def measure(repeats: int, faults: Sequence[str]) -> Figure:
    """Return the share of failures in which the rank at fault is named."""
    right: list[bool] = []
    wrong: Counter[str] = Counter()
    theirs: list[bool] = []
    with stack() as client:
        for fault, rank in product(faults, range(RANKS)):
            ends = [end_under_paceline(client, fault, rank) for _ in range(repeats)]
            told = [is_right(fault, rank, end) for end in ends]
            say(f"{fault} on rank {rank}: {sum(told)} of {repeats} told right")
            right += told
            wrong.update(f"{fault} on rank {rank}: {end}" for end, is_told in zip(ends, told, strict=True) if not is_told)
            theirs += [is_right(fault, rank, end_under_torchrun(fault, rank)) for _ in range(OF_TORCHRUN)]
    reference = (
        f"of {len(faults)} kinds of failures on {RANKS} ranks; torchrun names it in {sum(theirs)} of {len(theirs)}; goal {GOAL}; "
        f"wrong: {', '.join(f'{each} ({times})' for each, times in wrong.items()) or 'none'}"
    )
    return Figure("culprit_right", "1", sum(right) / len(right), float(min(right)), len(right), reference)


@dataclass(frozen=True)
class ToldEnd:
    """The end of a run as it is told: `rank` is the one that is named, if any is; `reason` why the job has ended, of Paceline."""

    rank: int | None
    reason: str | None = None


def is_right(fault: str, rank: int, end: ToldEnd) -> bool:
    """Return whether the failure of this rank is told as it was."""
    if fault == NAN:
        return end.reason == "loss_not_finite"
    return end.rank is not None if fault in MUTUAL and RANKS == 2 else end.rank == rank


def end_under_paceline(client: RestClient, fault: str, rank: int) -> ToldEnd:
    asked = NO_RESTART | ASKED.get(fault, {})
    job = wait_for_end(client, submitted(client, (fault, str(rank)), asked, program=PROGRAM))
    return ToldEnd(job.failure.rank if job.failure is not None else None, job.end_reason)


def end_under_torchrun(fault: str, rank: int) -> ToldEnd:
    """The rank that torchrun's report calls the root cause; None if it names none, or does not end."""
    try:
        named = _ROOT_CAUSE.search(under_torchrun(fault, str(rank), program=PROGRAM, timeout_s=TORCHRUN_S))
    except RuntimeError as error:
        say(f"no report: {error}")
        return ToldEnd(None)
    return ToldEnd(int(named[1]) if named is not None else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"of each failure on each rank (default {REPEATS})")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=FAULTS, metavar="FAULT", help=f"of {', '.join(FAULTS)} (default all)")
    parser.add_argument("--json", type=Path, help="write the figure to this file")
    arguments = parser.parse_args()
    report([measure(arguments.repeats, arguments.only)], arguments.json)


if __name__ == "__main__":
    main()
