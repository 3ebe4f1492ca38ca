"""Twelve short trials as one experiment, beside the same jobs submitted one behind the other: `overhead_vs_sequential`.

A real coordinator and two real agents of one slot each. Both ways run the same job specs; rounds take turns in the order A B B A, so that drift of
the machine favours neither. Trials of two ranks take all slots, so that an experiment can only lose; trials of one rank leave it a slot to fill.

    python -m scripts.bench.trials.overhead [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.cli.client import RestClient
from paceline.cli.experiment_progress import AT_REST
from scripts.bench.figures import Figure, report, summarize
from scripts.bench.first_step import job_ended, stack
from scripts.steps import say

TRIALS = 12
STEPS = 60
POLL_SECONDS = 0.05
EXPERIMENT_TIMEOUT_SECONDS = 600.0
#: Learning rates: what is varied, and costs nothing.
RATES = [0.001 * (number + 1) for number in range(TRIALS)]


def job(ranks: int) -> dict[str, Any]:
    return {
        "resources": {"slots": ranks},
        "model": {"kind": "mlp", "hidden": [256, 256]},
        "data": {"kind": "digits"},
        "optimizer": {"kind": "sgd", "lr": RATES[0]},
        "parallelism": {"strategy": "ddp"},
        "training": {"steps": STEPS, "global_batch_size": 64, "eval_every_steps": None},
        "checkpoint": {"every_steps": None},
    }


def as_experiment(client: RestClient, ranks: int, name: str) -> float:
    """Return the seconds from the post of the experiment to its end."""
    began = time.monotonic()
    posted = client.create("/experiments", {"name": name, "job": job(ranks), "grid": {"optimizer.lr": RATES}})
    while (now := client.get(f"/experiments/{posted['id']}"))["state"] not in AT_REST:
        if time.monotonic() - began > EXPERIMENT_TIMEOUT_SECONDS:
            raise TimeoutError(f"{name} is still {now['state']} after {EXPERIMENT_TIMEOUT_SECONDS:g} s: {now['trials']}")
        threading.Event().wait(POLL_SECONDS)
    if now["trials"]["completed"] != TRIALS:
        raise RuntimeError(f"{name} ended with {now['trials']}")
    return time.monotonic() - began


def one_behind_the_other(client: RestClient, ranks: int, name: str) -> float:
    """Return the seconds from the submission of the first job to the end of the last, each submitted when the one before has ended."""
    began = time.monotonic()
    for number, rate in enumerate(RATES):
        spec = job(ranks) | {"name": f"{name}-{number}", "optimizer": {"kind": "sgd", "lr": rate}}
        ended = job_ended(client, client.create("/training/jobs", spec)["id"])
        if ended.state != "completed":
            raise RuntimeError(f"{ended.name} ended as {ended.state} ({ended.end_reason})")
    return time.monotonic() - began


WAYS: tuple[Callable[[RestClient, int, str], float], ...] = (as_experiment, one_behind_the_other)


def ratios(client: RestClient, ranks: int, rounds: int) -> list[float]:
    """Return the experiment's time over that of the sequence, round by round."""
    found = []
    for number in range(rounds):
        order = WAYS if number % 2 == 0 else WAYS[::-1]
        took = {way: way(client, ranks, f"r{ranks}-{number}-{way.__name__[:2]}") for way in order}
        found.append(took[as_experiment] / took[one_behind_the_other])
        say(f"{ranks} ranks, round {number}: {took[as_experiment]:.2f} s beside {took[one_behind_the_other]:.2f} s")
    return found


def measure(rounds: int) -> list[Figure]:
    with stack() as client:
        for name in ("warm-up-1", "warm-up-2"):  # what a stack reads once it has read by then
            job_ended(client, client.create("/training/jobs", job(2) | {"name": name})["id"])
        full, half = ratios(client, 2, rounds), ratios(client, 1, rounds)
    return [
        summarize("overhead_vs_sequential", "ratio", full, f"{TRIALS} trials that take every slot each; goal 1.05"),
        summarize("overhead_vs_sequential_half", "ratio", half, f"{TRIALS} trials that take one of two slots each; goal under 1"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report(measure(arguments.rounds), arguments.json)


if __name__ == "__main__":
    main()
