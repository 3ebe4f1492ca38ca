"""The state of training that outlives a generation: everything a checkpoint holds, and nothing that depends on the world."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from distributed.traffic import NOTHING, Sent
from parallelism.compiled import compile_blocks, require_compiler
from parallelism.data_parallel import Sums
from parallelism.deferred import Build, at_once, defer
from parallelism.plan import Part
from parallelism.tree import Node
from training.builtin import builtin_task
from training.data.feed import Feed, open_feed
from training.data.sampler import derive_seed, total_steps
from training.entrypoint import load_entrypoint, own_optimizer
from training.spec.job import CheckpointPolicy, JobSpec, TrainingLength
from training.steps.loss_scale import UNSCALED, Unscaled, loss_scale_for
from training.steps.optim import build_optimizer
from training.task import Task

#: Committed steps whose reports are kept for a successor of rank 0, which may have died before it had written them down.
KEPT_REPORTS = 64


@dataclass(frozen=True)
class StepReport:
    step: int
    loss: float  # mean over the global batch
    gradient_norm: float
    learning_rate: float
    first_sample: int  # place in the endless line of samples (`data/sampler.py`), from 0
    samples: int
    seconds: float
    parts: Mapping[str, float]  # STEP_PARTS; they add up to `seconds`
    pause: bool  # agreed by all ranks
    checkpoint: bool
    leave: bool  # all ranks know their place in the next generation, or that they have none
    time: float  # wall clock
    scale: Unscaled = UNSCALED  # after this step
    applied: bool = True  # False: gradients overflowed in fp16, and the update was skipped
    written: bool = False  # every rank has done its part of the save under way
    sent: Sent = NOTHING  # by this rank
    bubble: float | None = None  # measured: the share of the step in which a pipeline's ranks computed nothing, in the mean


@dataclass
class PartialStep:
    """What this rank has computed of a step that is not committed. It depends on nothing but that step, so that another generation can
    go on from it; with `reproducible: false` there are no sums, and nothing to go on from."""

    step: int
    losses: dict[int, torch.Tensor] = field(default_factory=dict)  # by micro-batch: its part of the mean over the global batch
    sums: Sums = field(default_factory=dict)

    def only(self, nodes: Collection[Node]) -> PartialStep:
        losses = {index: loss for index, loss in self.losses.items() if any(index in node for node in nodes)}
        return PartialStep(self.step, losses, {node: self.sums[node] for node in nodes})


@dataclass(frozen=True)
class Held:
    """What a rank held of a state in parts, on the host: what is left of it once its mesh is gone."""

    part: Part
    tensors: Mapping[str, Mapping[str, torch.Tensor]]  # of model and optimizer, by the names that a checkpoint has for them


@dataclass
class TrainState:
    task: Task
    optimizer: torch.optim.Optimizer
    device: torch.device
    total_steps: int
    feed: Feed
    step: int = 0  # committed; it is the position in the data and the state of all random numbers too
    best: float | None = None  # of the checkpoint policy's metric
    scale: Unscaled = UNSCALED
    begun: bool = False  # at the job's start, at a checkpoint or beyond: not just built
    generation: int = 0  # the newest in which it has begun
    held: Held | None = None  # by whoever was in this one's place, until it is put back, or of no use any more
    unsettled: StepReport | None = None  # the committed step whose evaluation and save are still to be begun
    save_owed: bool = False  # one has begun; where its generation breaks off, it has to be made up for
    reports: deque[StepReport] = field(default_factory=lambda: deque(maxlen=KEPT_REPORTS))
    buffers_before: tuple[torch.Tensor, ...] = ()  # what the step under way found in the model's buffers
    partial: PartialStep | None = None  # of the step after `step`: under way, or broken off
    peak_rates: tuple[float, ...] = field(init=False)  # of the optimizer's groups, which the schedule scales
    compiled: bool = True  # all that training needs, where the job asks for it
    born_bare: bool = field(init=False)  # the optimizer has no state before its first update

    def __post_init__(self) -> None:
        self.take_optimizer(self.optimizer)

    def take_optimizer(self, fresh: torch.optim.Optimizer) -> None:
        self.optimizer, self.peak_rates = fresh, tuple(group["lr"] for group in fresh.param_groups)
        self.born_bare = not fresh.state

    @property
    def model(self) -> nn.Module:
        return self.task.model

    def forget(self) -> None:
        """All that it has come to by training: it is a state that was just built."""
        self.step, self.best, self.begun, self.unsettled, self.partial, self.held = 0, None, False, None, None, None
        self.scale, self.save_owed = type(self.scale)(), False
        self.reports.clear()

    def begin_step(self) -> PartialStep:
        """The step after `step`: what of it an earlier generation has left to this rank, or nothing yet."""
        self.buffers_before = tuple(buffer.clone() for buffer in self.task.model.buffers())
        self.partial = self.partial or PartialStep(self.step + 1)
        return self.partial

    def keep(self, step: int, nodes: Collection[Node]) -> None:
        """Of what is computed already, `nodes` are wanted, for the step after `step`."""
        self.partial = self.partial.only(nodes) if self.partial and self.partial.step == step + 1 else None

    def apply_update(self) -> None:
        """Of the gradients in the model, which are the global ones."""
        self.forget_trial_step()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def forget_trial_step(self) -> None:
        """Before the first update. Whoever asks for an optimizer's state has torch make it by a step with gradients and learning rate zero,
        which counts: a rank that has saved or sent it would be one step ahead."""
        if self.born_bare and self.step == self.scale.skipped_updates:
            self.optimizer.state.clear()

    def commit(self, report: StepReport) -> None:
        self.step, self.unsettled, self.buffers_before, self.partial = report.step, report, (), None
        self.scale = report.scale
        self.reports.append(report)

    @torch.no_grad()
    def rewind(self) -> None:
        """Undo what a step that broke off, or overflowed, has left in the model: running statistics and gradients. Parameters change only as it commits;
        `partial` stays."""
        self.optimizer.zero_grad()
        if self.buffers_before:
            for buffer, before in zip(self.task.model.buffers(), self.buffers_before, strict=True):
                buffer.copy_(before)
        self.buffers_before = ()
        self.task.model.train()

    def improve(self, policy: CheckpointPolicy, metrics: dict[str, float]) -> None:
        value = metrics.get(policy.metric)
        if value is not None and math.isfinite(value):
            candidates = [value] if self.best is None else [value, self.best]
            self.best = min(candidates) if policy.mode == "min" else max(candidates)


def new_state(spec: JobSpec, device: torch.device, cache: Path, build: Build = at_once) -> TrainState:
    """At step 0, the same on every rank: built from the seed alone. `build` is for models that are to be sharded."""
    if spec.compile:
        require_compiler(device)
    seed_everything(device, training_of(spec).seed, 0, 0)
    task = make_task(spec, cache, build)
    if spec.compile:
        compile_blocks(task.model, reproducible=spec.is_reproducible)
    if not spec.parallelism.in_parts:  # which takes its part of it there: all of it may be too large
        task.model.to(device)
    feed = open_feed(task.train, spec)
    return TrainState(
        task=task,
        optimizer=make_optimizer(spec, task),
        device=device,
        total_steps=total_steps(training_of(spec), feed.epoch_samples),
        feed=feed,
        scale=loss_scale_for(spec.precision),
        compiled=not spec.compile,
    )


def building(spec: JobSpec) -> Build:
    """How a rank builds its model. One that is only to be sharded is never whole on it; cutting needs the numbers."""
    return defer if spec.parallelism.shards and not spec.parallelism.cuts else at_once


def make_optimizer(spec: JobSpec, task: Task) -> torch.optim.Optimizer:
    return build_optimizer(spec.optimizer, task.model) if task.optimizer is None else own_optimizer(task)


def follow_model(state: TrainState, spec: JobSpec) -> None:
    """Give `state` an optimizer of the parameters that its model has now: sharding puts others in their place, and a pipeline leaves some of
    them. A new one knows of no steps."""
    held = {parameter for group in state.optimizer.param_groups for parameter in group["params"]}
    if not held <= set(state.task.model.parameters()):
        state.take_optimizer(make_optimizer(spec, state.task))


def make_task(spec: JobSpec, cache: Path, build: Build = at_once) -> Task:
    if spec.entrypoint is not None:
        return load_entrypoint(spec)
    assert spec.model is not None
    assert spec.data is not None
    return builtin_task(spec.model, spec.data, cache, build)


def training_of(spec: JobSpec) -> TrainingLength:
    """Specs that reach a trainer have this part: `JobSpec` allows its absence for scripts only."""
    assert spec.training is not None
    return spec.training


def seed_everything(device: torch.device, seed: int, step: int, micro_batch: int) -> None:
    """Make all randomness a function of (seed, step, micro-batch), wherever it runs; the data have a generator of their own.

    Not `torch.manual_seed`: without a GPU in use, each call queues itself, with a stack trace, for a GPU that may come.
    """
    derived = derive_seed(seed, step, micro_batch)
    torch.default_generator.manual_seed(derived)
    if device.type == "cuda":
        torch.cuda.manual_seed(derived)
    random.seed(derived)
    np.random.seed(derived % 2**32)
