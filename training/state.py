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

from parallelism.data_parallel import Sums
from parallelism.tree import Node
from training.builtin import builtin_task
from training.data.feed import Feed, open_feed
from training.data.sampler import derive_seed, total_steps
from training.entrypoint import load_entrypoint, own_optimizer
from training.optim import build_optimizer
from training.spec import CheckpointPolicy, JobSpec, TrainingLength
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


@dataclass
class TrainState:
    task: Task
    optimizer: torch.optim.Optimizer
    device: torch.device
    total_steps: int
    feed: Feed
    step: int = 0  # committed; it is the position in the data and the state of all random numbers too
    best: float | None = None  # of the checkpoint policy's metric
    begun: bool = False  # at the job's start, at a checkpoint or beyond: not just built
    unsettled: StepReport | None = None  # the committed step whose evaluation and save are still to be finished
    reports: deque[StepReport] = field(default_factory=lambda: deque(maxlen=KEPT_REPORTS))
    buffers_before: tuple[torch.Tensor, ...] = ()  # what the step under way found in the model's buffers
    partial: PartialStep | None = None  # of the step after `step`: under way, or broken off
    peak_rates: tuple[float, ...] = field(init=False)  # of the optimizer's groups, which the schedule scales

    def __post_init__(self) -> None:
        self.peak_rates = tuple(group["lr"] for group in self.optimizer.param_groups)

    def begin_step(self) -> PartialStep:
        """The step after `step`: what of it an earlier generation has left to this rank, or nothing yet."""
        self.buffers_before = tuple(buffer.clone() for buffer in self.task.model.buffers())
        self.partial = self.partial or PartialStep(self.step + 1)
        return self.partial

    def keep(self, step: int, nodes: Collection[Node]) -> None:
        """Of what is computed already, `nodes` are wanted, for the step after `step`."""
        self.partial = self.partial.only(nodes) if self.partial and self.partial.step == step + 1 else None

    def commit(self, report: StepReport) -> None:
        self.step, self.unsettled, self.buffers_before, self.partial = report.step, report, (), None
        self.reports.append(report)

    @torch.no_grad()
    def rewind(self) -> None:
        """Undo what a step that broke off has left in the model: running statistics and gradients. Parameters change only as it commits;
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


def new_state(spec: JobSpec, device: torch.device, cache: Path) -> TrainState:
    """At step 0, the same on every rank: built from the seed alone."""
    seed_everything(device, training_of(spec).seed, 0, 0)
    task = make_task(spec, cache)
    if not spec.parallelism.shards:  # which takes its part of it there: all of it may be too large
        task.model.to(device)
    feed = open_feed(task.train, spec)
    return TrainState(
        task=task,
        optimizer=make_optimizer(spec, task),
        device=device,
        total_steps=total_steps(training_of(spec), feed.epoch_samples),
        feed=feed,
    )


def make_optimizer(spec: JobSpec, task: Task) -> torch.optim.Optimizer:
    return build_optimizer(spec.optimizer, task.model) if task.optimizer is None else own_optimizer(task)


def follow_model(state: TrainState, spec: JobSpec) -> None:
    """Give `state` an optimizer of the parameters that its model has now: sharding puts others in their place. A new one knows of no steps."""
    held = {parameter for group in state.optimizer.param_groups for parameter in group["params"]}
    if not held <= set(state.task.model.parameters()):
        state.optimizer = make_optimizer(spec, state.task)


def make_task(spec: JobSpec, cache: Path) -> Task:
    if spec.entrypoint is not None:
        return load_entrypoint(spec)
    assert spec.model is not None
    assert spec.data is not None
    return builtin_task(spec.model, spec.data, cache)


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
