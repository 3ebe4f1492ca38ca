"""Paceline's trainer against a bare hand-written loop over the same model and data, alone and with DDP.

Both loops take turns in the same processes, so that other load on the machine hits both alike. A figure is the ratio of step times, bare
over Paceline's, of neighbouring rounds: 1 is as fast as bare, more is faster. Paceline's time includes telemetry.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from paceline.distributed import env
from paceline.training.link import RankPlace
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.spec.job import JobSpec
from scripts.bench.figures import Figure, run, summarize
from scripts.bench.parallel.ours import build
from tests.ranks import run_ranks

ROUNDS = 20
STEPS = 2  # per round and loop
MICRO_BATCH = 8
MODEL = {"kind": "gpt", "layers": 4, "heads": 4, "dim": 192, "context": 128}
TARGET = 0.97
TIMEOUT_SECONDS = 400.0


def bare_loop(world_size: int, batch: int = MICRO_BATCH) -> Callable[[], None]:
    """Build a loop as written by hand for one job: without telemetry, seeds or schedule."""
    spec = GptModel.model_validate(MODEL)
    model: nn.Module = gpt.build(spec)
    text = torch.randint(0, 256, (1 << 20,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True) if world_size > 1 else model

    def step() -> None:
        starts = torch.randint(0, len(text) - spec.context - 1, (batch,))
        windows = text[starts[:, None] + torch.arange(spec.context + 1)]
        loss: Tensor = F.cross_entropy(wrapped(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def our_loop(world: RankPlace, folder: Path) -> Callable[[], None]:
    spec = JobSpec.model_validate(
        {
            "name": "bench",
            "resources": {"nodes": world.world_size},
            "model": MODEL,
            "data": {"kind": "stdlib_text"},
            "training": {
                "steps": 1_000_000,
                "global_batch_size": MICRO_BATCH * world.world_size,
                "micro_batch_size": MICRO_BATCH,  # the same portions as the bare loop's
            },
        }
    )
    return build(world, folder, env.cache_directory(), spec).step


def compare(world: RankPlace, folder: Path) -> list[float]:
    """Ratios of a rank; both ranks measure the same rounds."""
    torch.set_num_threads(1)
    ours = our_loop(world, folder)
    bare = bare_loop(world.world_size)
    with contextlib.redirect_stdout(io.StringIO()):  # progress lines are part of the work, not of the table
        seconds(ours), seconds(bare)  # warm up
        return [round_ratio(bare, ours, first=number % 2 == 0) for number in range(ROUNDS)]


def round_ratio(bare: Callable[[], None], ours: Callable[[], None], *, first: bool) -> float:
    """The order alternates, so that neither always runs after the other."""
    if first:
        bare_seconds, our_seconds = seconds(bare), seconds(ours)
    else:
        our_seconds, bare_seconds = seconds(ours), seconds(bare)
    return bare_seconds / our_seconds


def seconds(step: Callable[[], None]) -> float:
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    return time.perf_counter() - started


def measure() -> list[Figure]:
    figures = []
    for name, world_size, rival in (("throughput_vs_bare", 1, "a bare loop"), ("throughput_vs_bare_ddp", 2, "a bare DDP loop")):
        with tempfile.TemporaryDirectory() as folder:
            ratios = run_ranks(compare, world_size, Path(folder), timeout=TIMEOUT_SECONDS)[0]
        figures.append(summarize(name, "ratio", ratios, f"{rival} of the same model on {world_size} process(es); at least {TARGET}"))
    return figures


if __name__ == "__main__":
    run(measure, __doc__)
