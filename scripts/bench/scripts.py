"""Scripts under Paceline beside the same file under torchrun: start, speed and restart.

Two ranks on this machine; a stack of two agents that has run a script before. Each pair is run back to back, in turns of order.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from paceline.cli.api_types import Job
from paceline.cli.client import RestClient
from paceline.cli.job_facts import has_ended
from scripts.bench.figures import Figure, run, summarize
from scripts.bench.first_step import PORT, stack, torchrun_command
from scripts.steps import ROOT, say

#: In a folder of its own, as users keep theirs: Python modules beside a script that have the name of a module of ours cost it a new interpreter.
PROGRAM = Path(__file__).parent / "programs" / "plain_ddp.py"
STEPS = 1000
PAIRS = 7
RANKS = 2
#: What torchrun gives each of several ranks. One rank then leaves a core to whatever watches over it.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
NO_RESTART = {"max_restarts": 0}
TIMEOUT_S = 120.0
#: Seldom: each question costs the coordinator some milliseconds of the two cores on which the ranks compute. Programs print their own times.
POLL_S = 3.0
#: STEPS take somewhat less; nodes count as unreachable after ten seconds and as lost after forty-five.
AWAY_S = 14.0
Launch = Callable[..., str]


def under_torchrun(*arguments: str, restarts: int = 0, ranks: int = RANKS, program: Path = PROGRAM, timeout_s: float = TIMEOUT_S) -> str:
    """Run torchrun to its end and return everything it printed. Raises RuntimeError if it has not ended after `timeout_s`."""
    command = torchrun_command(str(program), *arguments, ranks=ranks, restarts=restarts)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            return process.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            raise RuntimeError(f"torchrun has not ended after {timeout_s:g} s") from None


def kill_tree(root: int) -> None:
    """Kill a process and everything that it has started: torchrun gives its workers sessions of their own."""
    found = psutil.Process(root)
    for process in [*found.children(recursive=True), found]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def under_paceline(client: RestClient, *arguments: str, restarts: int = 0, ranks: int = RANKS) -> str:
    return printed(client, ended(client, arguments, restarts, ranks))


def printed(client: RestClient, job: Job) -> str:
    return "\n".join(line["text"] for line in client.get(f"/training/jobs/{job.id}/logs", limit=1000)["items"])


def on_a_node_alone(client: RestClient, *arguments: str) -> str:
    """As on a node whose coordinator is another machine: ours is stopped while the ranks train."""
    job_id = submitted(client, arguments)
    deadline = time.monotonic() + TIMEOUT_S
    while not client.get(f"/training/jobs/{job_id}/logs", limit=1)["items"]:  # the first step is told
        if time.monotonic() > deadline:
            raise TimeoutError(f"{job_id} has printed nothing after {TIMEOUT_S:g} s")
        threading.Event().wait(POLL_S / 10)
    coordinator = next(
        each for each in psutil.process_iter(["cmdline"]) if {"paceline.api.serve", str(PORT)} <= set(each.info["cmdline"] or ())
    )
    coordinator.suspend()
    try:
        threading.Event().wait(AWAY_S)
    finally:
        coordinator.resume()
    return printed(client, wait_for_end(client, job_id))


def ended(client: RestClient, arguments: tuple[str, ...], restarts: int = 0, ranks: int = RANKS) -> Job:
    return wait_for_end(client, submitted(client, arguments, {"max_restarts": restarts}, ranks))


def submitted(
    client: RestClient,
    arguments: tuple[str, ...],
    fault_tolerance: Mapping[str, Any] = NO_RESTART,
    ranks: int = RANKS,
    program: Path = PROGRAM,
) -> str:
    spec: dict[str, Any] = {
        "name": "bench",
        "script": {"path": str(program), "args": list(arguments)},
        "environment": {"variables": ONE_THREAD},
        "resources": {"nodes": ranks},
        "fault_tolerance": dict(fault_tolerance),
    }
    return str(client.create("/training/jobs", spec)["id"])


def wait_for_end(client: RestClient, job_id: str) -> Job:
    deadline = time.monotonic() + TIMEOUT_S
    while not has_ended(job := client.job(job_id)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{job_id} is still {job.state} after {TIMEOUT_S:g} s")
        threading.Event().wait(POLL_S)
    return job


def number(pattern: str, text: str, which: int = 0) -> float:
    found = re.findall(pattern, text)
    if len(found) <= which:
        raise RuntimeError(f"nothing like {pattern!r} in what the program printed:\n{text}")
    return float(found[which])


def first_step(launch: Launch) -> float:
    began = time.time()
    return number(r"first step at (\S+)", launch("1")) - began


def steps_seconds(launch: Launch) -> float:
    return number(r"steps in (\S+) s", launch(str(STEPS)))


def steps_seconds_alone(launch: Launch) -> float:
    return number(r"steps in (\S+) s", launch(str(STEPS), ranks=1))


def restart(launch: Launch) -> float:
    """Return the seconds from the kill of a rank to the first step of the next attempt."""
    text = launch("20", "killed", restarts=1)
    return number(r"first step at (\S+)", text, which=1) - number(r"killed at (\S+)", text)


def pairs(measure_one: Callable[[Launch], float], ours: Launch) -> tuple[list[float], list[float]]:
    """Measure both launchers in turn; return (Paceline's figures, torchrun's figures)."""
    found: dict[Launch, list[float]] = {ours: [], under_torchrun: []}
    for turn in range(PAIRS):
        for launch in (ours, under_torchrun) if turn % 2 else (under_torchrun, ours):
            found[launch].append(measure_one(launch))
    return found[ours], found[under_torchrun]


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Return torchrun's seconds over Paceline's, pair by pair."""
    return [their / our for our, their in zip(ours, theirs, strict=True)]


def restarts_of(launch: Launch) -> tuple[list[float], int]:
    """Return (seconds of the restarts that came about, how many did not).

    torchrun's second attempt may meet what the first has left in its store, or stand still in torch's own deadlock (pytorch issue 56297).
    """
    found: list[float] = []
    for _ in range(PAIRS):
        try:
            found.append(restart(launch))
        except RuntimeError as error:
            say(f"no second attempt: {str(error).splitlines()[0]}")
    return found, PAIRS - len(found)


def measure() -> list[Figure]:
    with stack() as client:
        ours: Launch = partial(under_paceline, client)
        ours("1")
        say("first step")
        starts, their_starts = pairs(first_step, ours)
        say("speed")
        speeds = ratios(*pairs(steps_seconds, ours))
        speeds_of_node = ratios(*pairs(steps_seconds, partial(on_a_node_alone, client)))
        speeds_alone = ratios(*pairs(steps_seconds_alone, ours))
        say("restart")
        restarts, failed = restarts_of(ours)
        their_restarts, their_failed = restarts_of(under_torchrun)
    return [
        summarize("script_first_step_s", "s", starts, f"torchrun {statistics.median(their_starts):.2f} s; goal 1.5 s"),
        summarize("script_vs_torchrun", "1", speeds, f"steps per second over torchrun's, {STEPS} steps of DDP on {RANKS} ranks; goal 1.00"),
        summarize("script_vs_torchrun_node", "1", speeds_of_node, "the same with the coordinator stopped: as on a node alone"),
        summarize("script_vs_torchrun_alone", "1", speeds_alone, "one rank of one thread: a core is left for what watches over it"),
        summarize(
            "script_restart_s",
            "s",
            restarts or [math.nan],
            f"{failed} came to nothing; torchrun {statistics.median(their_restarts or [math.nan]):.2f} s, {their_failed} of {PAIRS} came to "
            "nothing; goal 1.0 s",
        ),
    ]


if __name__ == "__main__":
    run(measure, __doc__)
