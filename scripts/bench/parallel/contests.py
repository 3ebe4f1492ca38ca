"""Paceline beside bare scripts, and all of them beside one process that communicates with no other."""

from __future__ import annotations

import contextlib
import functools
import io
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from paceline.distributed import env
from paceline.training.link import RankPlace
from scripts.bench.figures import Figure, summarize
from scripts.bench.parallel import bare
from scripts.bench.parallel.ours import MakeJob, job
from scripts.bench.parallel.turns import Loop, Round, in_turns
from scripts.bench.parallel.workload import GLOBAL_BATCH, MICRO_BATCHES, RANKS, UNTIED
from tests.ranks import run_ranks

GOAL = 0.98
TIMEOUT_SECONDS = 900.0


@dataclass(frozen=True)
class Rival:
    words: str
    make: Callable[[], Loop]


@dataclass(frozen=True)
class Contest:
    ours: MakeJob
    rivals: Mapping[str, Rival]  # by the figure in which ours is compared with it
    alone: Callable[[], Loop]  # one process, for which the other one waits; in the same portions
    samples_alone: int  # in a step of it


def data_parallel_alone() -> Loop:
    """Return a loop over one rank's share of a step, in a single process."""
    return bare.single(GLOBAL_BATCH // RANKS)


def pipeline_alone() -> Loop:
    """Return a loop over the whole pipeline's work of a step, in a single process."""
    return bare.single(GLOBAL_BATCH, MICRO_BATCHES, UNTIED)


def pipelined(**how: Any) -> MakeJob:
    return functools.partial(job, model=UNTIED, micro_batches=MICRO_BATCHES, strategy="ddp", pipeline=RANKS, **how)


CONTESTS = {
    "ddp": Contest(
        functools.partial(job, strategy="ddp"),
        {"ddp_vs_bare": Rival("DDP", bare.ddp)},
        data_parallel_alone,
        GLOBAL_BATCH // RANKS,
    ),
    "fsdp": Contest(
        functools.partial(job, strategy="fsdp"),
        {
            "fsdp_vs_bare": Rival("fully_shard of each block and the root", bare.fsdp_by_blocks),
            "fsdp_vs_bare_root": Rival("fully_shard of the root only", bare.fsdp_at_root),
        },
        data_parallel_alone,
        GLOBAL_BATCH // RANKS,
    ),
    "pipeline_1f1b": Contest(
        pipelined(pipeline_schedule="1f1b"),
        {"pipeline_1f1b_vs_bare": Rival("Schedule1F1B", bare.one_forward_one_backward)},
        pipeline_alone,
        GLOBAL_BATCH,
    ),
    "pipeline_zbv": Contest(
        pipelined(pipeline_schedule="zero_bubble_v"),
        {"pipeline_zbv_vs_bare": Rival("ScheduleZBVZeroBubble", bare.zero_bubble_v)},
        pipeline_alone,
        GLOBAL_BATCH,
    ),
}


def measure(name: str, rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        found: list[Round] = run_ranks(compete, RANKS, name, rounds, Path(folder), timeout=TIMEOUT_SECONDS)[0]
    return figures(name, CONTESTS[name], found)


def compete(world: RankPlace, name: str, rounds: int, folder: Path) -> list[Round]:
    torch.set_num_threads(1)
    contest = CONTESTS[name]
    loops = {"ours": contest.ours(world, folder, env.cache_directory())}  # joins the process group
    loops |= {figure: rival.make() for figure, rival in contest.rivals.items()}
    loops["alone"] = contest.alone() if world.rank == 0 else rest
    with contextlib.redirect_stdout(io.StringIO()):  # progress lines are part of the work, not of the table
        return in_turns(loops, rounds)


def rest() -> None:
    """Do nothing: this rank has no part in the loop."""


def figures(name: str, contest: Contest, rounds: Sequence[Round]) -> list[Figure]:
    compared = [against(figure, rival, [each[figure] / each["ours"] for each in rounds]) for figure, rival in contest.rivals.items()]
    theirs = ", ".join(f"{rival.words} {statistics.median(scaling(contest, each, rounds)):.3f}" for each, rival in contest.rivals.items())
    alone = statistics.median(each["alone"] for each in rounds) / contest.samples_alone
    reference = f"of {RANKS} processes by themselves ({1000 * alone:.1f} ms a sample); {theirs}"
    return [*compared, summarize(f"{name}_scaling", "ratio", scaling(contest, "ours", rounds), reference)]


def against(figure: str, rival: Rival, ratios: Sequence[float]) -> Figure:
    low, _, high = statistics.quantiles(ratios, n=4)
    return summarize(
        figure, "ratio", ratios, f"speed beside torch's {rival.words}, at least {GOAL}; half of all from {low:.3f} to {high:.3f}"
    )


def scaling(contest: Contest, loop: str, rounds: Sequence[Round]) -> list[float]:
    """Samples per second, as a share of what as many processes would do that need not talk to each other."""
    return [GLOBAL_BATCH / each[loop] / (RANKS * contest.samples_alone / each["alone"]) for each in rounds]
