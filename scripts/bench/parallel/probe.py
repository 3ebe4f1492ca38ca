"""What this machine's ranks reach, for the planner: measured on the model that is to be planned, and on the group that it will use."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from paceline.parallelism.model_shape import ModelShape
from paceline.parallelism.planning.machines import Link, Machines
from paceline.parallelism.planning.step_time import BACKWARD_OF_FORWARD, MICRO_BATCH_PASSES, UPDATE_PASSES
from paceline.training.task import Dataset, Task
from scripts.bench.parallel.workload import CLIP_NORM, RANKS

REPETITIONS = 7
SMALL, LARGE = 1, 8  # samples
SHORT_MESSAGE, LONG_MESSAGE = 256, 2_000_000  # elements of fp32


def measured_machines(task: Task, shape: ModelShape, memory_bytes: int) -> Machines:
    """Measure this machine for the planner; the result is the same on every rank. All ranks must call this together: they share the
    machine's memory, as they do when they train."""
    small, large = typical(*(partial(both_passes, task, samples) for samples in (SMALL, LARGE)))
    link = measured_link()
    mine = torch.tensor([small, large, measured_memory(task.model), link.bytes_per_second, link.latency_seconds], dtype=torch.float64)
    dist.broadcast(mine, src=0)
    small, large, memory, bandwidth, latency = mine.tolist()
    link = Link(bandwidth, latency)
    machines = Machines(
        nodes=1,
        slots_per_node=RANKS,
        memory_bytes=memory_bytes,
        flops_per_second=math.inf,
        within=link,
        between=link,
        overlaps=False,  # gloo's threads compete for the cores that compute
        memory_bytes_per_second=memory,
    )
    passes = machines.passes(MICRO_BATCH_PASSES, sum(layer.parameters for layer in shape.layers))
    fixed = max(passes, small - SMALL * (large - small) / (LARGE - SMALL))  # of a micro-batch; small ones have the caches to themselves
    return replace(
        machines,
        flops_per_second=(1 + BACKWARD_OF_FORWARD) * shape.flops * LARGE / (large - fixed),
        layer_overhead_seconds=(fixed - passes) / len(shape.layers),
    )


def both_passes(task: Task, samples: int) -> None:
    assert isinstance(task.train, Dataset)
    loss, _ = task.loss(task.model, task.train.batch(torch.arange(samples), None))
    loss.backward()  # type: ignore[no-untyped-call]
    task.model.zero_grad(set_to_none=False)


def measured_memory(model: nn.Module) -> float:
    """Bytes per second that an update of AdamW goes over."""
    elements = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)

    def update() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()

    return torch.float32.itemsize * UPDATE_PASSES["adamw"] * elements / typical(update)[0]


def measured_link() -> Link:
    """Measure bandwidth and latency from two all-reduces. Between two ranks each takes two messages, of half the bytes each."""
    short, long = typical(*(partial(dist.all_reduce, torch.zeros(size)) for size in (SHORT_MESSAGE, LONG_MESSAGE)))
    element = torch.float32.itemsize
    return Link(bytes_per_second=element * (LONG_MESSAGE - SHORT_MESSAGE) / (long - short), latency_seconds=short / 2)


def typical(*runs: Callable[[], object]) -> list[float]:
    """Median seconds of each, once it is warm; they take turns, and all ranks begin together."""
    for run in runs:
        run()
    rounds = [[timed(run) for run in runs] for _ in range(REPETITIONS)]
    return [statistics.median(each) for each in zip(*rounds, strict=True)]


def timed(run: Callable[[], object]) -> float:
    dist.barrier()
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
