"""A tiny GPT trained for some steps under any product of shard x context x tensor: what parity tests compare with one process."""

from __future__ import annotations

import contextlib
import functools
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.utils.checkpoint import checkpoint

from distributed.abort import Fence
from distributed.process_group import join
from parallelism.gradients import clip, settle_gradients, sum_gradients
from parallelism.precision import autocast
from parallelism.tensor_parallel import plain
from training.builtin import next_token_loss
from training.link import World
from training.models.gpt import model as gpt
from training.models.gpt.shard import on_own_chunks, shard
from training.workload import GptModel

STEPS = 20
MICRO_BATCHES = 2
SEQUENCES = 2  # in a micro-batch
CLIP_NORM = 1.0
#: Adam divides a gradient by its own size; where that is nothing but rounding, only this keeps it small.
EPSILON = 1e-6
RANKS_TIMEOUT_SECONDS = 100.0
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Run:
    name: str
    shard: int = 1
    context: int = 1
    tensor: int = 1
    model: dict[str, Any] = field(default_factory=dict)
    precision: Literal["fp32", "bf16"] = "fp32"
    checkpointing: bool = False
    frozen: tuple[str, ...] = ()

    def alone(self) -> Run:
        return replace(self, shard=1, context=1, tensor=1)


@dataclass(frozen=True)
class Outcome:
    losses: list[float]
    norms: list[float]
    parameters: dict[str, numpy.ndarray[Any, Any]]
    logits: numpy.ndarray[Any, Any]  # in evaluation mode, of sequences of odd length


def build(run: Run) -> gpt.Gpt:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 2, "heads": 4, "dim": 32, "context": 16, "vocab_size": 32}
    model = gpt.build(GptModel(**(sizes | run.model)))
    for name in run.frozen:
        model.get_parameter(name).requires_grad_(False)
    return model


def windows(step: int, micro_batch: int, model: gpt.Gpt) -> Tensor:
    generator = torch.Generator().manual_seed(MICRO_BATCHES * step + micro_batch)
    return torch.randint(model.spec.vocab_size, (SEQUENCES, model.spec.context + 1), generator=generator)


def on_ranks(world: World, runs: list[Run]) -> list[Outcome]:
    """Of runs that all fill the world."""
    group = join(world, Fence())
    outcomes = [Training(run).outcome() for run in runs]
    group.close()
    return outcomes


def alone(run: Run) -> Outcome:
    return Training(run.alone()).outcome()


class Training:
    def __init__(self, run: Run) -> None:
        self.run, self.model = run, build(run)
        self.axes = make_axes(run)
        tensor, context, sharded = (self.axes.get(name) for name in ("tensor", "context", "shard"))
        shard(self.model, tensor=tensor, context=context)
        self.loss = next_token_loss if context is None else on_own_chunks(next_token_loss, context, tensor)
        if run.checkpointing:
            for block in self.model.blocks:
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if sharded is not None:
            for module in (*self.model.blocks, self.model):
                fully_shard(module, mesh=sharded)
        self.micro_batches = range(MICRO_BATCHES) if sharded is None else [sharded.get_local_rank()]
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-3, eps=EPSILON, fused=True)

    def outcome(self) -> Outcome:
        losses, norms = zip(*(self.step(number) for number in range(STEPS)), strict=True)
        parameters = {name: plain(parameter.detach()).numpy() for name, parameter in self.model.named_parameters()}
        return Outcome(list(losses), list(norms), parameters, self.evaluate())

    def step(self, number: int) -> tuple[float, float]:
        loss = torch.stack([self.accumulate(number, index) for index in self.micro_batches]).sum()
        settle_gradients(self.model.parameters())
        if context := self.axes.get("context"):
            sum_gradients(self.model.parameters(), context.get_group())
        for axis in ("context", "shard"):
            if mesh := self.axes.get(axis):
                dist.all_reduce(loss, group=mesh.get_group())
        norm = clip(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), norm.item()

    def accumulate(self, step: int, index: int) -> Tensor:
        """This rank's part of the mean over the global batch. FSDP divides what it adds up by the size of its axis."""
        torch.manual_seed(1000 * step + index)
        with self.vocabulary():
            with autocast(self.run.precision, CPU):
                loss, _ = self.loss(self.model, (windows(step, index, self.model),))
            part = plain(loss) / (MICRO_BATCHES * self.run.context)
            (part * self.run.shard).backward()  # type: ignore[no-untyped-call]
        return part.detach()

    def vocabulary(self) -> AbstractContextManager[None]:
        return loss_parallel() if "tensor" in self.axes else contextlib.nullcontext()

    @torch.no_grad()
    def evaluate(self) -> numpy.ndarray[Any, Any]:
        logits: Tensor = self.model.eval()(windows(0, 0, self.model)[:, :7])
        return logits.numpy()


def make_axes(run: Run) -> dict[str, DeviceMesh]:
    """A 1-D mesh for each axis that is cut, slices of one mesh."""
    sizes = {name: size for name, size in (("shard", run.shard), ("context", run.context), ("tensor", run.tensor)) if size > 1}
    if not sizes:
        return {}
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    return {name: mesh[name] for name in sizes}


def assert_same(ranks: list[Outcome], expected: Outcome, bound: float) -> None:
    """Relative: losses and norms one by one, parameters and logits as wholes."""
    for rank in ranks:
        numpy.testing.assert_allclose(rank.losses, expected.losses, rtol=bound)
        numpy.testing.assert_allclose(rank.norms, expected.norms, rtol=bound)
        assert distance(rank.logits, expected.logits) < bound
        assert rank.parameters.keys() == expected.parameters.keys()
        for name, values in expected.parameters.items():
            assert distance(rank.parameters[name], values) < bound, name


def distance(found: numpy.ndarray[Any, Any], expected: numpy.ndarray[Any, Any]) -> float:
    return float(numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected))
