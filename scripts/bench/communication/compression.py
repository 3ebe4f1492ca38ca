"""What compressed gradients make of a step on slow links: the same GPT on two hosts, dense and compressed in turns.

A figure is the ratio of step times, dense (gloo's ring through DDP's buckets) over compressed: 1 is as fast, more is faster.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism import mesh
from paceline.parallelism.plan import Coordinates
from paceline.training.build import make_ready
from paceline.training.elastic import first_assignment
from paceline.training.gradient_sums import gradient_sums
from paceline.training.link import World
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from scripts.bench.communication.hosts import run_on_hosts, shaped_hosts
from scripts.bench.figures import Figure, run, summarize
from scripts.bench.reproducible import NobodyAsks

#: 12 million parameters.
MODEL = {"kind": "gpt", "layers": 6, "heads": 6, "dim": 408, "context": 64}
GLOBAL_BATCH = 4
KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "bf16": {"compression": "bf16"},
    "top1": {"compression": "top_k", "ratio": 0.01, "dense_steps": 0},
    "top1_exact": {"compression": "top_k", "ratio": 0.01, "threshold": "exact", "dense_steps": 0},
    "power_sgd2": {"compression": "power_sgd", "rank": 2, "dense_steps": 0},
}
RATES = ("100mbit", "1gbit")
STEPS, ROUNDS = 4, 2


def steps(world: World, communication: dict[str, Any], count: int) -> list[float]:
    """Return the seconds of `count` steps, after a first one."""
    torch.set_num_threads(1)
    document = {
        "name": "bench",
        "resources": {"slots": world.world_size},
        "model": MODEL,
        "data": {"kind": "stdlib_text"},
        "training": {"steps": 1_000_000, "global_batch_size": GLOBAL_BATCH, "micro_batch_size": GLOBAL_BATCH // world.world_size},
        "reproducible": False,
        "communication": communication,
    }
    spec = JobSpec.model_validate(document)
    sizes = spec.parallelism.degrees(world.world_size)
    group = join(world, GroupAborter(), mesh.axis_group_ranks(sizes), reduces=spec.communication.algorithms_on(world.device))
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    coordinates, sums = Coordinates(sizes, group.rank), gradient_sums(spec, world, state, group)
    runner = make_ready(spec, state, group, coordinates, reducer=sums.reducer)(
        spec, first_assignment(derived.micro_batches(spec), coordinates, None)
    )
    found = []
    for _ in range(count + 1):
        started = time.perf_counter()
        runner.run(NobodyAsks())
        sums.reducer.commit()
        state.pending_step = None
        found.append(time.perf_counter() - started)
    group.barrier_and_leave()
    return found[1:]


def measure() -> list[Figure]:
    figures: list[Figure] = []
    for rate in RATES:
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        with shaped_hosts(2, rate) as network:
            for number in range(ROUNDS):
                for kind in (*KINDS,) if number % 2 == 0 else (*reversed(KINDS),):
                    seconds[kind] += run_on_hosts(steps, (0, 1), network, KINDS[kind], STEPS, timeout=400.0)[0]
        dense = statistics.median(seconds["dense"])
        figures += [
            summarize(
                f"{kind}_{rate}",
                "ratio",
                [dense / each for each in found],
                f"speed beside dense, {dense:.3g} s a step, 2 hosts of one rank",
            )
            for kind, found in seconds.items()
        ]
    return figures


if __name__ == "__main__":
    run(measure, __doc__)
