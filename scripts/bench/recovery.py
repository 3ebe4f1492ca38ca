"""From a kill -9 to the survivors' next committed step: `rank_killed_s`, `node_killed_s`, with `steps_lost` and `hangs` over all of them.

Real coordinator, three real agents with one slot each, a small GPT on three ranks of which one after the other is killed. Both ends
are this machine's wall clock: the kill's, and the record of the first step that the next generation commits.

    python -m scripts.bench.recovery [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from cli.client import Client
from scripts.bench.figures import Figure, report, summarize
from scripts.bench.first_step import stack
from scripts.steps import say

T = TypeVar("T")

RANK_FAULTS, NODE_FAULTS = 12, 10
QUICK_RANK_FAULTS, QUICK_NODE_FAULTS = 3, 1
RANKS = 3
STEPS = 100_000
WARM_STEPS = 8
START_TIMEOUT_S = 60.0
#: A job that commits no step for so long after a fault hangs.
HANG_S = 60.0
POLL_S = 0.02
PEERS = "torchrun 4.3 s with half of the kills hanging, torchft 0.5-5.4 s"
NODE_PEERS = "torchrun 45 s, torchft 5 s"


@dataclass(frozen=True)
class Recovery:
    seconds: float | None  # None: it hangs
    steps_lost: int


def spec() -> dict[str, Any]:
    return {
        "name": "recovery",
        "resources": {"nodes": RANKS},
        "model": {"kind": "gpt", "layers": 4, "heads": 4, "dim": 128, "context": 64},
        "data": {"kind": "stdlib_text"},
        "training": {"steps": STEPS, "global_batch_size": 6, "micro_batch_size": 1, "eval_every_steps": None},
        "checkpoint": {"every_steps": None},
        "fault_tolerance": {"recovery": "close_up", "max_restarts": 0},
    }


def recoveries(client: Client, faults: int, strike: Callable[[dict[str, Any]], float]) -> Iterator[Recovery]:
    """`strike` kills what a rank of the API's job names and returns when. A job loses ranks until one is left."""
    while faults > 0:
        job_id = str(client.create("/training/jobs", spec())["id"])
        for _ in range(min(faults, RANKS - 1)):
            faults -= 1
            recovery = _one(client, job_id, strike)
            say(f"  {recovery}")
            yield recovery
            if recovery.seconds is None:
                break
        _cancel(client, job_id)


def _cancel(client: Client, job_id: str) -> None:
    job = client.job(job_id)
    if not job.ended:
        client.delete(f"/training/jobs/{job_id}", job.revision)
    _until(lambda: client.job(job_id).ended, START_TIMEOUT_S)


def _one(client: Client, job_id: str, strike: Callable[[dict[str, Any]], float]) -> Recovery:
    generation = _settled(client, job_id)
    ranks = client.get(f"/training/jobs/{job_id}")["ranks"]
    killed_at = strike(ranks[generation % len(ranks)])
    first = _until(lambda: _first_step_of(client, job_id, generation + 1), HANG_S)
    if first is None:
        return Recovery(None, 0)
    step, at = first
    told = {step for curve in _losses(client, job_id) for step in curve["steps"]}
    return Recovery(at - killed_at, step - 1 - len(told & set(range(1, step))))


def _settled(client: Client, job_id: str) -> int:
    """The generation, once it has committed WARM_STEPS steps."""

    def warm() -> int | None:
        curves = _losses(client, job_id)
        newest = max((curve["generation"] for curve in curves), default=0)
        ready = client.job(job_id).state == "running" and sum(len(c["steps"]) for c in curves if c["generation"] == newest) >= WARM_STEPS
        return newest if ready else None

    generation = _until(warm, START_TIMEOUT_S)
    if generation is None:
        raise TimeoutError(f"job {job_id} has not taken {WARM_STEPS} steps within {START_TIMEOUT_S:g} s")
    return generation


def _first_step_of(client: Client, job_id: str, generation: int) -> tuple[int, float] | None:
    """What was committed in it, not what it tells again of the last one."""
    start = next(
        (each["start_step"] for each in client.get(f"/training/jobs/{job_id}")["generations"] if each["generation"] == generation), None
    )
    for curve in _losses(client, job_id):
        if start is not None and curve["generation"] == generation:
            points = [(step, at) for step, at in zip(curve["steps"], curve["times"], strict=True) if step > start]
            return points[0] if points else None
    return None


def _losses(client: Client, job_id: str) -> list[dict[str, Any]]:
    return list(client.get(f"/metrics/jobs/{job_id}", names="loss")["curves"])


def _until(probe: Callable[[], T | None], timeout: float) -> T | None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if answer := probe():
            return answer
        threading.Event().wait(POLL_S)
    return None


def kill_rank(rank: dict[str, Any]) -> float:
    os.kill(rank["pid"], signal.SIGKILL)
    return time.time()


def kill_node(rank: dict[str, Any]) -> float:
    """Agent, spawner and rank, in the order in which none can tell of the others."""
    process = psutil.Process(rank["pid"])
    spawner = process.parent()
    assert spawner is not None
    data = spawner.cmdline()[spawner.cmdline().index("--data") + 1]
    everyone = [(each, each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    agents = [each for each, command in everyone if "cluster.agent.main" in command and data in command]
    at = time.time()
    for each in (*agents, spawner, process):
        each.kill()
    return at


def measure(*, quick: bool) -> list[Figure]:
    with stack(agents=RANKS) as client:
        ranks = list(recoveries(client, QUICK_RANK_FAULTS if quick else RANK_FAULTS, kill_rank))
    nodes: list[Recovery] = []
    for _ in range(QUICK_NODE_FAULTS if quick else NODE_FAULTS):  # a node that is gone stays away: a stack of its own for each
        with stack(agents=RANKS) as client:
            nodes += recoveries(client, 1, kill_node)
    everything = [*ranks, *nodes]
    return [
        *_seconds("rank_killed_s", ranks, f"goal 0.35 s; {PEERS}"),
        *_seconds("node_killed_s", nodes, f"goal 0.5 s; {NODE_PEERS}"),
        summarize("steps_lost", "steps", [float(each.steps_lost) for each in everything], "goal 0; torchrun 3-9"),
        summarize("hangs", "1", [float(sum(each.seconds is None for each in everything))], f"of {len(everything)} kills; goal 0"),
    ]


def _seconds(figure: str, found: list[Recovery], reference: str) -> list[Figure]:
    seconds = [each.seconds for each in found if each.seconds is not None]
    return [summarize(figure, "s", seconds, reference)] if seconds else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three kills of a rank and one of a node")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    report(measure(quick=arguments.quick), arguments.json)


if __name__ == "__main__":
    main()
