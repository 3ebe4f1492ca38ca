"""Steps of one GPT of 12 million parameters, as a job takes them, with any `communication` section: what the benchmarks of sums compare."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism import mesh
from paceline.parallelism.communication import words
from paceline.parallelism.plan import Coordinates
from paceline.training.build import make_ready
from paceline.training.elastic import first_assignment
from paceline.training.gradient_sums import gradient_sums
from paceline.training.link import RankPlace
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from scripts.bench.reproducible import NobodyAsks

#: Losses are compared as means over so many steps.
WINDOW = 20
MODEL = {"kind": "gpt", "layers": 6, "heads": 6, "dim": 408, "context": 64}
#: What a job may say under `communication`.
Section = dict[str, Any] | str


@dataclass(frozen=True)
class Run:
    """Steps as one rank saw them."""

    seconds: list[float]  # of each step after the first
    losses: list[float]  # of the same steps
    decided: str = ""  # by measurement: the last sentence
    links: str = ""


def spec_of(world_size: int, communication: Section, global_batch: int, **training: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "bench",
            "resources": {"slots": world_size},
            "model": MODEL,
            "data": {"kind": "stdlib_text"},
            "training": {"steps": 1_000_000, "global_batch_size": global_batch, "micro_batch_size": global_batch // world_size, **training},
            "reproducible": False,
            "communication": communication,
        }
    )


def steps(
    world: RankPlace, communication: Section, count: int, global_batch: int, *, after_verdict: bool = False, goal: float | None = None
) -> Run:
    """Run `count` steps after a first one; `after_verdict`: after what is chosen by measurement. `goal`: no more than are needed for a mean of the
    last WINDOW losses of at most that."""
    torch.set_num_threads(1)
    spec = spec_of(world.world_size, communication, global_batch)
    sizes = spec.parallelism.degrees(world.world_size)
    group = join(world, GroupAborter(), mesh.axis_group_ranks(sizes), reduces=spec.communication.algorithms_on(world.device))
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    coordinates, sums = Coordinates(sizes, group.rank), gradient_sums(spec, world, state, group)
    first = first_assignment(derived.micro_batches(spec), coordinates, None)
    runner = make_ready(spec, state, group, coordinates, reducer=sums.reducer)(spec, first)
    seconds: list[float] = []
    losses: list[float] = []
    decided, links = "", ""
    while len(seconds) < count + 1 or (after_verdict and not decided):
        started = time.perf_counter()
        report = runner.run(NobodyAsks())
        sums.reducer.commit()
        state.pending_step = None
        seconds.append(time.perf_counter() - started)
        losses.append(report.loss)
        verdict = sums.after_step(report)
        if verdict is not None:
            decided, links = words.why(verdict), words.links(verdict.links)
            if after_verdict:
                seconds, losses = [], []
        if goal is not None and len(losses) > WINDOW and statistics.fmean(losses[-WINDOW:]) <= goal:
            break
    group.barrier_and_leave()
    return Run(seconds[1:], losses[1:], decided, links)
