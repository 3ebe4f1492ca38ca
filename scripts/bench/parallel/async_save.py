"""What a checkpoint costs training when it is written behind the steps, and beside it when training waits.

Real rank processes with all their telemetry, on one core each; runs of both kinds take turns, and a round is one of each. A stall is what rank 0's
training thread spends on one save from beginning to end. A slowdown is the mean step while parts are written over the median step while nothing is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.bench.figures import Figure, summarize
from scripts.bench.parallel.workload import GLOBAL_BATCH, MODEL, RANKS
from tests.gangs import Job

EVERY_STEPS = 10
SAVES = 4  # in a run, of which the last is the end's, that training waits for in any case
RUN_TIMEOUT_SECONDS = 600.0  # on a crowded machine too


@dataclass(frozen=True)
class Run:
    saves: list[dict[str, Any]]  # what each says of itself, but for the end's
    seconds: float  # of the steps with these saves between them


@dataclass(frozen=True)
class SavePlace:
    """Where a run saves: `settings` of the spec's `checkpoint`, and the variables that hold what the place asks for."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)


BESIDE_THE_JOB = SavePlace()


def spec(*, behind: bool, place: SavePlace) -> dict[str, Any]:
    return {
        "name": "bench",
        "resources": {"nodes": RANKS},
        "model": dict(MODEL),
        "data": {"kind": "stdlib_text"},
        "training": {"steps": SAVES * EVERY_STEPS, "global_batch_size": GLOBAL_BATCH, "eval_every_steps": None},
        "checkpoint": {"every_steps": EVERY_STEPS, "asynchronous": behind, **place.settings},
        "environment": {"variables": dict(place.credentials)},
    }


def run(folder: Path, *, behind: bool, place: SavePlace = BESIDE_THE_JOB) -> Run:
    job = Job(folder, spec(behind=behind, place=place))
    where: dict[str, Any] = {"checkpoint_directory": f"{place.settings['directory']}/{folder.name}"} if place.settings else {}
    try:
        gang = job.start(RANKS, **where)
        for process in gang.processes:
            process.join(RUN_TIMEOUT_SECONDS)
        ends = gang.wait()
    finally:
        job.end()
    if any(end.exit_code for end in ends):
        raise RuntimeError(f"a run broke: {[end.exit_code for end in ends]}\n{ends[0].output}")
    times = {record.step: record.time for record in ends[0].metrics}
    first, last = EVERY_STEPS, SAVES * EVERY_STEPS - 1
    return Run(ends[0].events_of("checkpoint_committed")[:-1], times[last] - times[first])


def rounds(count: int) -> Iterator[tuple[Run, Run]]:
    """Run one job that saves in the background and one that waits, in alternating order."""
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            kinds = (True, False) if number % 2 == 0 else (False, True)
            found = {behind: run(Path(folder) / f"behind-{behind}", behind=behind) for behind in kinds}
        yield found[True], found[False]


def measure(count: int) -> list[Figure]:
    return figures(list(rounds(count)))


def figures(pairs: Sequence[tuple[Run, Run]]) -> list[Figure]:
    behind = [save for each, _ in pairs for save in each.saves]
    waiting = [save for _, each in pairs for save in each.saves]
    size = f"{behind[0]['bytes'] / 1e6:.0f} MB by {RANKS} ranks"
    slowdowns, writing = [save["slowdown"] for save in behind], [save["write_seconds"] for save in behind]
    gains = [wait.seconds / free.seconds for free, wait in pairs]
    return [
        summarize("async_save_stall_ms", "ms", milliseconds(behind), f"{size}; training goes on meanwhile"),
        summarize("save_stall_ms", "ms", milliseconds(waiting), f"{size}; training waits"),
        summarize("async_save_slowdown", "ratio", slowdowns, "steps while a checkpoint is written, over others"),
        summarize("async_save_write_seconds", "s", writing, f"{size}, hashed and synced"),
        summarize(
            "async_save_vs_waiting", "ratio", gains, f"speed with a save every {EVERY_STEPS} steps, beside training that waits for it"
        ),
    ]


def milliseconds(saves: Sequence[dict[str, Any]]) -> list[float]:
    return [1000 * save["stall_seconds"] for save in saves]
