"""What one would write by hand with torch alone, for one job: the ways of torch's own tutorials, over the process group that is there.

No telemetry, no seeds, no schedule of rates, no checks; but the global norm is clipped and the loss is read, as in any training loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleZBVZeroBubble
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from scripts.bench.parallel.turns import Loop
from scripts.bench.parallel.workload import (
    CLIP_NORM,
    CPU,
    GLOBAL_BATCH,
    LEARNING_RATE,
    MICRO_BATCHES,
    MODEL,
    RANKS,
    UNTIED,
    Text,
)


def build(document: object) -> gpt.Gpt:
    return gpt.build(GptModel.model_validate(document))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def single(samples: int = GLOBAL_BATCH // RANKS, micro_batches: int = 1, document: object = MODEL) -> Loop:
    """Train in one process, for which the others wait; gradients are summed over equal micro-batches."""
    model = build(document)
    return data_parallel(model, model, samples, micro_batches)


def ddp() -> Loop:
    model = build(MODEL)
    return data_parallel(model, DistributedDataParallel(model, gradient_as_bucket_view=True))


def fsdp_by_blocks() -> Loop:
    """Shard each block and the root, as torch's tutorial on `fully_shard` does."""
    model = build(MODEL)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return data_parallel(model, model)


def fsdp_at_root() -> Loop:
    """The fastest way to wrap a model of this size."""
    model = build(MODEL)
    fully_shard(model)
    return data_parallel(model, model)


def data_parallel(model: nn.Module, wrapped: nn.Module, samples: int = GLOBAL_BATCH // RANKS, micro_batches: int = 1) -> Loop:
    text, optimizer = Text(int(MODEL["context"]), seed=dist.get_rank()), optimizer_of(model)

    def step() -> tuple[float, float]:
        total = torch.zeros(())
        for _ in range(micro_batches):
            tokens, targets = text.draw(samples // micro_batches)
            loss = loss_of(wrapped(tokens), targets) / micro_batches
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        whole = norm.full_tensor() if isinstance(norm, DTensor) else norm
        return total.item(), whole.item()

    return step


class Part(nn.Module):
    """Some of the model's blocks, with what comes before the first one and after the last."""

    def __init__(self, model: gpt.Gpt, blocks: Sequence[int]) -> None:
        super().__init__()
        self.entrance = model.embedding if 0 in blocks else nn.Identity()
        self.blocks = nn.ModuleList(model.blocks[number] for number in blocks)
        self.exit = nn.Sequential(model.norm, model.head) if len(model.blocks) - 1 in blocks else nn.Identity()
        self.register_buffer("cosine", model.cosine)
        self.register_buffer("sine", model.sine)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.entrance(hidden)
        for block in self.blocks:
            hidden = block(hidden, self.cosine, self.sine)
        output: Tensor = self.exit(hidden)
        return output


def one_forward_one_backward() -> Loop:
    """Two blocks on each rank."""
    number = dist.get_rank()
    part = Part(build(UNTIED), (2 * number, 2 * number + 1))
    schedule = Schedule1F1B(PipelineStage(part, number, RANKS, CPU), MICRO_BATCHES, loss_fn=loss_of)
    return pipelined([part], schedule.step, first=number == 0, last=number == RANKS - 1)


def zero_bubble_v() -> Loop:
    """Run ScheduleZBVZeroBubble with one block to a stage: the first rank has the first and the last one."""
    number, model = dist.get_rank(), build(UNTIED)
    places = (number, 2 * RANKS - 1 - number)
    parts = [Part(model, (place,)) for place in places]
    stages: list[Any] = [PipelineStage(part, place, 2 * RANKS, CPU) for part, place in zip(parts, places, strict=True)]
    schedule = ScheduleZBVZeroBubble(stages, MICRO_BATCHES, loss_fn=loss_of)
    return pipelined(parts, schedule.step, first=number == 0, last=number == 0)


def pipelined(parts: Sequence[nn.Module], run: Callable[..., object], *, first: bool, last: bool) -> Loop:
    """The whole global batch goes through; gradients are clipped by the norm over all stages."""
    text, optimizer = Text(int(UNTIED["context"]), seed=0), optimizer_of(nn.ModuleList(parts))
    parameters = [parameter for part in parts for parameter in part.parameters()]

    def step() -> tuple[float, float]:
        tokens, targets = text.draw(GLOBAL_BATCH)
        losses: list[Tensor] = []
        run(*([tokens] if first else []), **({"target": targets, "losses": losses} if last else {}), return_outputs=False)
        square = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]).square()
        dist.all_reduce(square)
        nn.utils.clip_grads_with_norm_(parameters, CLIP_NORM, square.sqrt())
        optimizer.step()
        optimizer.zero_grad()
        return sum(loss.item() for loss in losses) / MICRO_BATCHES, square.sqrt().item()

    return step
