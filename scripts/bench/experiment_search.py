"""A learning-rate sweep of a small GPT on real ranks, halved and as a whole grid: `asha_slot_seconds_vs_grid`.

Both are experiments of the same nine learning rates, posted together to a coordinator with one agent of two slots, one trial of each at a
time: whatever else the machine does slows both. Once the halving has ended the grid has the machine to itself, which favours the grid. The
known best is the grid's: the lowest loss on held-out text at the last
step. The figure is the slot-seconds of the halving over those of the grid, as the coordinator counts them (generations' begin to end, with
starts and saves); its reference says whether both found the same learning rate. The 95th percentile is of the rounds.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.cli.client import RestClient
from paceline.cli.local.layout import Layout
from paceline.cli.local.programs import StackPlan
from paceline.cli.local.stack import bring_up, take_down
from scripts.bench.figures import Figure, report, summarize
from scripts.steps import say

SLOTS = 2
#: From far too low to far too high, half a power of ten apart.
LEARNING_RATES = [float(f"{10 ** (-4 + index / 2):.3g}") for index in range(9)]
FACTOR = 3
#: Steps of the whole training; the first rung is at a ninth of them.
STEPS, QUICK_STEPS = 810, 270
EXPERIMENT_TIMEOUT_S = 3600.0
POLL_S = 0.5
GOAL = 0.4


@dataclass(frozen=True)
class Outcome:
    slot_seconds: float
    steps: int  # of all trials together
    learning_rate: float | None  # of its best trial
    loss: float | None


def spec(name: str, steps: int, *, halved: bool) -> dict[str, Any]:
    rung = steps // FACTOR**2
    job = {
        "resources": {"slots": 1},
        "parallelism": {"strategy": "single"},
        "model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 32, "context": 32},
        "data": {"kind": "stdlib_text"},
        "optimizer": {"kind": "adamw"},
        "training": {
            "steps": steps,
            "global_batch_size": 8,
            "micro_batch_size": 8,
            "eval_every_steps": rung,
            "eval_samples": 256,
            "seed": 7,
        },
        "checkpoint": {"every_steps": None},
    }
    halving = {"halving": {"min_steps": rung, "factor": FACTOR}} if halved else {}
    return {
        "name": name,
        "project": name,
        "job": job,
        "grid": {"optimizer.lr": LEARNING_RATES},
        "metric": {"name": "eval_loss"},
        "at_once": 1,
        **halving,
    }


@contextmanager
def stack() -> Iterator[RestClient]:
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        layout = Layout.at(Path(folder))
        try:
            with bring_up(layout, StackPlan(port=port, agents=1, slots_per_agent=SLOTS), say).client() as client:
                yield client
        finally:
            take_down(layout, say)


def outcome_of(client: RestClient, experiment: dict[str, Any]) -> Outcome:
    """Wait for the end of an experiment. Raises TimeoutError, and RuntimeError where trials fail."""
    name = experiment["name"]
    path, deadline = f"/experiments/{experiment['id']}", time.monotonic() + EXPERIMENT_TIMEOUT_S
    while experiment["state"] == "running":
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has not ended after {EXPERIMENT_TIMEOUT_S:g} s: {experiment['trials']}")
        threading.Event().wait(POLL_S)
        experiment = client.get(path)
    if experiment["state"] != "completed" or experiment["trials"]["failed"]:
        raise RuntimeError(f"{name} ended as {experiment['state']}: {experiment['trials']}")
    trials = client.get(f"{path}/trials", limit=200)["items"]
    best = next((trial for trial in trials if trial["index"] == experiment["best_trial"]), None)
    steps = sum(trial["job"]["step"] for trial in trials if trial["job"])
    outcome = Outcome(experiment["slot_hours"] * 3600, steps, best and best["values"]["optimizer.lr"], experiment["best_metric"])
    say(f"{name}: {outcome.slot_seconds:.1f} slot-seconds, best {outcome.learning_rate} with {outcome.loss}")
    return outcome


def measure(steps: int, rounds: int) -> list[Figure]:
    ratios, found = list[float](), list[tuple[Outcome, Outcome]]()
    with stack() as client:
        for number in range(rounds):
            posted = [
                client.create("/experiments", spec(f"{name}-{number}", steps, halved=name == "halved")) for name in ("halved", "grid")
            ]
            halved, whole = (outcome_of(client, experiment) for experiment in posted)
            ratios.append(halved.slot_seconds / whole.slot_seconds)
            found.append((halved, whole))
    return [summarize("asha_slot_seconds_vs_grid", "ratio", ratios, reference(found))]


def reference(found: list[tuple[Outcome, Outcome]]) -> str:
    halved, whole = found[-1]
    same = sum(each.learning_rate == other.learning_rate for each, other in found)
    return (
        f"goal {GOAL} or less; the same winner in {same} of {len(found)} (grid: lr {whole.learning_rate:g}, loss {whole.loss:.4g}; halved: "
        f"lr {halved.learning_rate:g}); {halved.slot_seconds:.0f} of {whole.slot_seconds:.0f} slot-seconds, {halved.steps:,} of "
        f"{whole.steps:,} steps"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps in place of {STEPS}, one round")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    steps, rounds = (QUICK_STEPS, 1) if arguments.quick else (STEPS, arguments.rounds)
    report(measure(steps, rounds), arguments.json)


if __name__ == "__main__":
    main()
