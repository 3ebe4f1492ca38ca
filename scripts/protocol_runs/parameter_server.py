"""The ranks of `run_sync_parameter_server.py`: linear regression with the same `ServedModel` that jobs train with, and its serial twin."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.parameter_server.messages import HEADER_NUMBERS
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.data_parallel.reproducible import Reproducible
from paceline.parallelism.parameter_server.aggregation import rounds
from paceline.parallelism.parameter_server.served_model import ServedModel, shards_of
from paceline.parallelism.plan import Coordinates, assign_evenly, with_servers
from paceline.training.link import RankPlace
from scripts.protocol_runs import server_files

RATE, MOMENTUM = 0.05, 0.9
HEADER_BYTES = 8 * HEADER_NUMBERS


@dataclass(frozen=True)
class Run:
    """A run: the model, its data, and its ranks."""

    world_size: int
    servers: int
    steps: int
    dim: int  # parameters
    samples: int  # of each worker's shard of the data
    seed: int
    folder: Path | None = None  # of the servers' checkpoints
    every: int = 2  # steps between checkpoints
    kill_at: int | None = None  # step in which server 0 is killed, once

    @property
    def workers(self) -> int:
        return self.world_size - self.servers

    @property
    def identity(self) -> dict[str, object]:
        """Everything that decides a number: checkpoints of another run are refused."""
        kept = ("world_size", "servers", "dim", "samples", "seed")
        return {name: value for name, value in asdict(self).items() if name in kept}


class Regression(nn.Module):
    """y = x w, with the `dim` parameters in as many blocks as there are servers."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(run.seed)
        whole = torch.randn(run.dim, generator=draw) / run.dim**0.5
        self.blocks = nn.ParameterList([nn.Parameter(block.clone()) for block in torch.tensor_split(whole, run.servers)])

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ torch.cat(list(self.blocks))


def loss_of(run: Run, model: nn.Module, step: int, worker: int) -> Tensor:
    """Return this worker's part of the mean squared error over all workers' shards. Each step draws fresh noise."""
    draw = torch.Generator().manual_seed(run.seed + 1 + worker)
    inputs = torch.randn(run.samples, run.dim, generator=draw)
    targets = inputs @ torch.linspace(-1, 1, run.dim) + 0.01 * torch.randn(run.samples, generator=draw.manual_seed(step))
    loss: Tensor = (model(inputs) - targets).square().mean() / run.workers
    return loss


def bytes_of(tensors: Sequence[Tensor]) -> bytes:
    return b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)


@dataclass(frozen=True)
class SerialStep:
    """The state of one process after a step."""

    loss: float
    norm: float
    blocks: tuple[bytes, ...]  # of the parameters, one for each server

    @property
    def checksum(self) -> int:
        return zlib.crc32(b"".join(self.blocks))


def serial(run: Run) -> list[SerialStep]:
    """Train in this process alone, with one micro-batch for each worker. The first of the steps is step 0: the beginning."""
    torch.set_num_threads(1)  # as on the ranks
    model = Regression(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    wrapped, found = Reproducible(model, SoloGroup()), [SerialStep(float("nan"), float("nan"), _blocks(model))]
    for step in range(1, run.steps + 1):
        wrapped.begin_step(assign_evenly(run.workers, 1), {})
        losses = []
        for worker in range(run.workers):
            with wrapped.accumulate(worker, final=worker == run.workers - 1):
                losses.append(loss_of(run, model, step, worker))
                losses[-1].backward()  # type: ignore[no-untyped-call]
        wrapped.finish_step()
        norm = nn.utils.get_total_norm([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
        optimizer.step()
        optimizer.zero_grad()
        found.append(SerialStep(sum(loss.item() for loss in losses), norm.item(), _blocks(model)))
    return found


def _blocks(model: Regression) -> tuple[bytes, ...]:
    return tuple(bytes_of([block]) for block in model.blocks)


@dataclass(frozen=True)
class Checked:
    """The checks of a rank in a step."""

    step: int
    text: str
    is_right: bool
    loss: float | None = None


def run_rank(world: RankPlace, tell: Callable[[Any], None], run: Run, expected: Sequence[SerialStep], start: int, may_die: bool) -> None:
    """Train from step `start` + 1 to the last; a server goes on from its checkpoint of `start`."""
    torch.use_deterministic_algorithms(mode=True)
    place = Coordinates(with_servers(run.world_size, run.servers), world.rank)
    model, step = Regression(run), start
    group = join(world, GroupAborter())
    served = ServedModel(model, group, run.servers, lambda: step + 1)
    assignment = place.assignment(run.workers)
    optimizer = _take_up(run, model, place, start) if place.is_server else None
    while step < run.steps:
        served.pull()
        tell(_pulled(expected[step], model, step))
        served.begin_step(assignment, {})
        losses = [_compute(run, served, step + 1, worker) for worker in assignment.own]
        served.finish_step()
        if may_die and world.rank == 0 and run.kill_at == step + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        norm = served.clip(None).item()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
            tell(_updated(run, place, model, optimizer, expected[step + 1], step + 1, norm))
        else:
            tell(Checked(step + 1, "", norm == expected[step + 1].norm, sum(losses)))
        step += 1
    served.pull()
    tell(_pulled(expected[step], model, step))
    group.barrier_and_leave()


def _compute(run: Run, served: ServedModel, step: int, worker: int) -> float:
    with served.accumulate(worker, final=True):
        loss = loss_of(run, served.module, step, worker)
        loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def _take_up(run: Run, model: Regression, place: Coordinates, start: int) -> torch.optim.Optimizer:
    """Return the optimizer of a server's shard, with parameters and momentum as its checkpoint of `start` has them."""
    own = shards_of(model, run.servers)[place.rank].trainable
    optimizer = torch.optim.SGD(own, lr=RATE, momentum=MOMENTUM)
    if start:
        assert run.folder is not None
        content = server_files.read(run.folder, run.identity, place.rank, start).content
        values = torch.frombuffer(bytearray(content), dtype=torch.float32).view(2, -1)
        with torch.no_grad():
            for parameter, value, momentum in zip(own, *(row.split([p.numel() for p in own]) for row in values), strict=True):
                parameter.copy_(value)
                optimizer.state[parameter]["momentum_buffer"] = momentum.clone()
    return optimizer


def _pulled(serial_step: SerialStep, model: Regression, step: int) -> Checked:
    mine = b"".join(_blocks(model))
    return Checked(step, f"pulled {zlib.crc32(mine):#010x}", mine == b"".join(serial_step.blocks))


def _updated(
    run: Run, place: Coordinates, model: Regression, optimizer: torch.optim.Optimizer, serial_step: SerialStep, step: int, norm: float
) -> Checked:
    """Compare a server's shard with serial SGD, and save it where it is time to."""
    own = list(shards_of(model, run.servers)[place.rank].trainable)
    mine, count = bytes_of(own), sum(rounds(place.assignment(run.workers)).values())
    words = f"server {place.rank}: {count} pushes of {len(mine)} bytes in order, CRC-32 right, value {zlib.crc32(mine):#010x}"
    if run.folder is not None and step % run.every == 0:
        momentum = [optimizer.state[parameter]["momentum_buffer"] for parameter in own]
        digest = server_files.write(run.folder, run.identity, place.rank, step, mine + bytes_of(momentum))
        words += f", saved with SHA-256 {digest[:12]}…"
    return Checked(step, words, mine == serial_step.blocks[place.rank] and norm == serial_step.norm)
