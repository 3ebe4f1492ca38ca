"""The ranks of `run_sync_ring_allreduce.py`: linear regression whose gradients are summed over the ring that jobs use, and its serial twin."""

from __future__ import annotations

import math
import os
import signal
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.distributed.abort import GroupAborter
from paceline.distributed.collectives.reductions import RingSum
from paceline.distributed.collectives.ring import Segment
from paceline.distributed.joining import join
from paceline.distributed.reduction import GradientBucket, GradientPiece
from paceline.training.link import RankPlace

RATE, MOMENTUM = 0.05, 0.9  # the rate where there are as many samples as parameters, or more


@dataclass(frozen=True)
class Run:
    """A run: the model, its data, and its ranks."""

    world_size: int
    steps: int
    dim: int  # parameters
    samples: int  # of each rank's shard of the data
    seed: int
    kill_at: int | None = None  # step in which the last rank is killed


@dataclass(frozen=True)
class RankStep:
    """The state of one rank after a step."""

    step: int
    loss: float  # its part of the mean
    gradient: bytes  # the sum
    parameters: bytes
    sent_bytes: int


def gradient_of(run: Run, parameters: Tensor, step: int, rank: int) -> tuple[float, Tensor]:
    """Return a rank's part of the mean squared error over all shards, and of its gradient (dim). Each step draws fresh noise."""
    draw = torch.Generator().manual_seed(run.seed + 1 + rank)
    inputs = torch.randn(run.samples, run.dim, generator=draw)
    targets = inputs @ torch.linspace(-1, 1, run.dim) + 0.01 * torch.randn(run.samples, generator=draw.manual_seed(step))
    error = inputs @ parameters - targets
    scale = 1.0 / (run.samples * run.world_size)
    return float(error.square().sum() * scale), inputs.T @ error * (2 * scale)


def first_parameters(run: Run) -> Tensor:
    drawn = torch.randn(run.dim, generator=torch.Generator().manual_seed(run.seed))
    return drawn / math.sqrt(run.dim)


def update(run: Run, parameters: Tensor, momentum: Tensor, gradient: Tensor) -> None:
    """Take a step of SGD with momentum, in place."""
    momentum.mul_(MOMENTUM).add_(gradient)
    parameters.sub_(RATE * min(1.0, run.samples * run.world_size / run.dim) * momentum)


def bytes_of(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


def crc_of(content: bytes) -> str:
    return f"{zlib.crc32(content):#010x}"


def serial(run: Run) -> list[RankStep]:
    """Train in this process alone, and add each element in the order in which it goes around the ring: from the rank that its segment is named after."""
    torch.set_num_threads(1)
    parameters, momentum, found = first_parameters(run), torch.zeros(run.dim), []
    segments = Segment(0, run.dim).divide(run.world_size)
    for step in range(1, run.steps + 1):
        parts = [gradient_of(run, parameters, step, rank) for rank in range(run.world_size)]
        total = torch.empty(run.dim)
        for number, (first, last) in enumerate(segments):
            total[first:last] = parts[number][1][first:last]
            for after in range(1, run.world_size):
                total[first:last] += parts[(number + after) % run.world_size][1][first:last]
        update(run, parameters, momentum, total)
        found.append(RankStep(step, sum(loss for loss, _ in parts), bytes_of(total), bytes_of(parameters), 0))
    return found


def run_rank(world: RankPlace, tell: Callable[[Any], None], run: Run) -> None:
    """Train on this rank's shard, and tell the parent of every step."""
    torch.set_num_threads(1)
    group = join(world, GroupAborter(), {"replicate": [list(range(world.world_size))]}, reduces=frozenset({"ring"}))
    groups = group.reduction_groups
    assert groups is not None
    assert groups.ring is not None
    reduction = RingSum(groups.ring)
    parameters, momentum = first_parameters(run), torch.zeros(run.dim)
    group.sent()
    for step in range(1, run.steps + 1):
        loss, gradient = gradient_of(run, parameters, step, world.rank)
        if run.kill_at == step and world.rank == world.world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        group.start_reduction(reduction, GradientBucket(gradient, [GradientPiece("w", (run.dim,), 0, run.dim)], step)).wait()
        update(run, parameters, momentum, gradient)
        tell(RankStep(step, loss, bytes_of(gradient), bytes_of(parameters), int(group.sent().by_axis["replicate"])))
    group.barrier_and_leave()
