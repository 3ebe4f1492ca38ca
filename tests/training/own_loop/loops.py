"""Loops of a user's own, run on every rank of a test; and the same training in bare torch on one process, to compare with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.distributed.env import position
from paceline.parallelism.mesh import local_tensor
from paceline.training.own_loop.trainer import Trainer
from paceline.training.task import Batch

ROWS = 16  # of one update, over all ranks and batches
CLIP = 0.5
RATE = 0.05


class Small(nn.Module):
    """Blocks in a list, tied ends, a vector that is not trained."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(dropout)) for _ in range(3))
        self.last = nn.Linear(4, 4, bias=False)
        self.last.weight = self.first.weight
        self.scale = nn.Parameter(torch.full((4,), 2.0), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        output: Tensor = self.last(hidden) * self.scale
        return output


class Normed(nn.Module):
    """Running statistics of what each rank has seen for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.head(self.norm(inputs))
        return output


def build(dropout: float = 0.0) -> nn.Module:
    """Other numbers on each rank; rank 0's must count."""
    torch.manual_seed(position().rank)
    return Small(dropout)


def rows(update: int) -> Batch:
    """Inputs and targets (ROWS, 4) of one update."""
    generator = torch.Generator().manual_seed(update)
    inputs = torch.randn(ROWS, 4, generator=generator)
    return inputs, torch.roll(inputs, 1, dims=1).square()


def own_batch(step: int, accumulation: int) -> Batch:
    """This rank's share of the update that batch `step` belongs to."""
    place = position()
    size = ROWS // (accumulation * place.world_size)
    first = (step % accumulation * place.world_size + place.rank) * size
    inputs, targets = rows(step // accumulation)
    return inputs[first : first + size], targets[first : first + size]


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=RATE)


@dataclass
class Trained:
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    parameters: dict[str, list[float]] = field(default_factory=dict)


def train(
    options: Mapping[str, Any],
    updates: int,
    *,
    save_at: int | None = None,
    load: bool | str = False,
    make: Callable[[], nn.Module] = build,
) -> Trained:
    """On every rank, with a Trainer. `save_at`: after so many updates; `load`: the newest checkpoint, or this one."""
    found = Trained()
    with Trainer(make(), **options) as trainer:
        optimizer = optimizer_of(trainer.model)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        if load:
            trainer.load_checkpoint(optimizer, None if load is True else load, scheduler=scheduler)
        accumulation = options.get("gradient_accumulation_steps", 1)
        for step in range(trainer.next_step, updates * accumulation):
            update = trainer.train_step(own_batch(step, accumulation), optimizer, F.mse_loss, step)
            if update is None:
                continue
            found.losses.append(update.loss)
            found.norms.append(update.gradient_norm)
            scheduler.step()
            if update.step == (save_at or 0) * accumulation:
                trainer.save_checkpoint(optimizer, scheduler=scheduler, metrics={"loss": update.loss})
        found.parameters = whole(trainer.model)
    return found


def whole(model: nn.Module) -> dict[str, list[float]]:
    found = {}
    for name, parameter in itertools.chain(model.named_parameters(), model.named_buffers()):
        value = parameter.full_tensor() if hasattr(parameter, "full_tensor") else local_tensor(parameter)
        found[name] = value.detach().flatten().tolist()
    return found


def bare(updates: int, skipped: Collection[int] = ()) -> Trained:
    """The same training with nothing but torch, in one process, all rows of an update at once; without the updates `skipped`."""
    found, model = Trained(), build()
    optimizer = optimizer_of(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for update in range(updates):
        inputs, targets = rows(update)
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        found.norms.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        if update not in skipped:
            optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        found.losses.append(loss.item())
    found.parameters = whole(model)
    return found


def folder_of(directory: Path, step: int) -> Path:
    """The one checkpoint of `step`."""
    (found,) = directory.glob(f"step-{step}.g*")
    return found
