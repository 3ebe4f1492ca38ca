"""The state of training that outlives a generation: everything a checkpoint holds, and nothing that depends on the world."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakSet

import numpy as np
import torch
from torch import nn

from paceline.distributed.reduction import ReductionState
from paceline.distributed.traffic import NOTHING, SentBytes
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.trial import CommunicationTrial
from paceline.parallelism.compiled import compile_blocks, require_compiler
from paceline.parallelism.deferred import Build, at_once, defer
from paceline.parallelism.parameter_server.served_model import ShardUpdate
from paceline.parallelism.plan import StateShard
from paceline.parallelism.running_statistics import restore_buffers
from paceline.parallelism.tree import TreeNode
from paceline.parallelism.wrapped import Sums
from paceline.training.builtin import builtin_task
from paceline.training.data.feed import Feed, open_feed
from paceline.training.data.sampler import derive_seed, total_steps
from paceline.training.entrypoint import load_entrypoint, own_optimizer
from paceline.training.modes import frozen_in_evaluation
from paceline.training.optim.bad_loss import BadLossVerdict
from paceline.training.optim.loss_guard import LossGuard
from paceline.training.optim.loss_scale import UNSCALED, Unscaled, loss_scale_for
from paceline.training.optim.optimizers import build_optimizer
from paceline.training.schema.checkpoint import CheckpointPolicy
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload, EntrypointWorkload, ScriptWorkload
from paceline.training.task import Task

#: Committed steps whose reports are kept for a successor of rank 0, which may have died before it had written them down.
KEPT_REPORTS = 64


@dataclass(frozen=True)
class StepReport:
    """Result of one committed step; the same on every rank but for times and traffic."""

    step: int
    loss: float  # mean over the global batch
    gradient_norm: float
    learning_rate: float
    first_sample: int  # place in the endless line of samples (`data/sampler.py`), from 0
    samples: int
    seconds: float
    parts: Mapping[str, float]  # STEP_PARTS, without communication where it is not known; they add up to `seconds`
    pause: bool  # agreed by all ranks
    checkpoint: bool
    leave: bool  # all ranks know their place in the next generation, or that they have none
    time: float  # wall clock
    scale: Unscaled = UNSCALED  # after this step
    applied: bool = True  # False: gradients overflowed in fp16, or the loss was bad, and the update was skipped
    bad: BadLossVerdict | None = None
    skipped_updates: int = 0  # since step 0
    outcomes: tuple[int, ...] | None = None  # sizes by rank, once every rank has done its work for the pending save
    sent: SentBytes = NOTHING  # by this rank
    bubble: float | None = None  # measured: the share of the step in which a pipeline's ranks computed nothing, in the mean
    gradients: bool = False  # all ranks know that the next step's gradients are to be recorded


@dataclass
class PartialStep:
    """This rank's gradients and losses of a step that is not committed.

    It depends on nothing but that step, so that another generation can continue from it. With `reproducible: false` there are no sums, and
    nothing to continue from.
    """

    step: int
    losses: dict[int, torch.Tensor] = field(default_factory=dict)  # by micro-batch: its part of the mean over the global batch
    sums: Sums = field(default_factory=dict)

    def only(self, nodes: Collection[TreeNode]) -> PartialStep:
        losses = {index: loss for index, loss in self.losses.items() if any(index in node for node in nodes)}
        return PartialStep(self.step, losses, {node: self.sums[node] for node in nodes})


#: Python numbers of model and optimizer, by the names that a checkpoint has for them.
Numbers = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class HeldShards:
    """A rank's shards of a state, on the host: what is left of the state once its mesh is gone."""

    part: StateShard
    tensors: Mapping[str, Mapping[str, torch.Tensor]]  # of model and optimizer, by the names that a checkpoint has for them
    numbers: Numbers  # ... and what is no tensor


@dataclass
class TrainState:
    """State of training that outlives a generation: model, optimizer, progress, and everything a checkpoint holds."""

    task: Task
    optimizer: torch.optim.Optimizer
    device: torch.device
    total_steps: int
    feed: Feed
    step: int = 0  # committed; it is the position in the data and the state of all random numbers too
    best: float | None = None  # of the checkpoint policy's metric
    scale: Unscaled = UNSCALED
    guard: LossGuard = field(default_factory=LossGuard)
    started: bool = False  # at the job's start, at a checkpoint or beyond: not just built
    generation: int = 0  # the newest in which it has begun
    held: HeldShards | None = None  # by the state before this one, until they are restored or of no use
    pending_step: StepReport | None = None  # the committed step whose evaluation and save are still to be begun
    unsent: ReductionState = field(default_factory=dict)  # by this rank: what compressed gradients have left out up to `step`
    unsent_next: ReductionState = field(default_factory=dict)  # ... up to the step after it, where a generation broke off behind that
    communication: CommunicationTrial | None = None  # what `communication: auto` has found out
    save_unfinished: bool = False  # one has begun; where its generation breaks off, it has to be made up for
    reports: deque[StepReport] = field(default_factory=lambda: deque(maxlen=KEPT_REPORTS))
    buffers_before: tuple[torch.Tensor, ...] = ()  # what the step under way found in the model's buffers
    partial: PartialStep | None = None  # of the step after `step`: under way, or broken off
    part: StateShard = ()  # of the optimizer's state, on a parameter server; its `optimizer` has that part's parameters only
    pending_update: ShardUpdate | None = None  # on a parameter server: of the step after `step`, whose gradients are all there
    peak_rates: tuple[float, ...] = field(init=False)  # of the optimizer's groups, which the schedule scales
    compiled: bool = True  # all that training needs, where the job asks for it
    optimizer_starts_empty: bool = field(init=False)  # the optimizer has no state before its first update
    in_evaluation: WeakSet[nn.Module] = field(init=False)  # parts of the model that stay in evaluation mode; a pipeline drops some

    def __post_init__(self) -> None:
        self.in_evaluation = WeakSet(frozen_in_evaluation(self.model))
        self.set_optimizer(self.optimizer)

    def set_optimizer(self, fresh: torch.optim.Optimizer) -> None:
        self.optimizer, self.peak_rates = fresh, tuple(group["lr"] for group in fresh.param_groups)
        self.optimizer_starts_empty = not fresh.state

    @property
    def model(self) -> nn.Module:
        return self.task.model

    def reset(self) -> None:
        """Drop everything that training has produced: the state counts as just built."""
        self.step = 0
        self.best = None
        self.started = False
        self.pending_step = None
        self.partial = None
        self.held = None
        self.unsent = {}
        self.unsent_next = {}
        self.pending_update = None
        self.scale = type(self.scale)()
        self.guard = LossGuard()
        self.save_unfinished = False
        self.reports.clear()

    def give_up_lossy(self) -> None:
        """Have `communication: auto` take nothing that leaves something out, as it has decided in an earlier process. Without several replicas there is no
        choice yet, and the next one inherits it."""
        self.communication = self.communication or CommunicationTrial({ReductionChoice(): 0.0})
        self.communication.gave_up_lossy = True

    def begin_step(self) -> PartialStep:
        """Begin the step after `step`. Returns what an earlier generation has computed of it, or an empty `PartialStep`."""
        self.buffers_before = tuple(buffer.clone() for buffer in self.task.model.buffers())
        self.partial = self.partial or PartialStep(self.step + 1)
        return self.partial

    def keep_partial(self, step: int, nodes: Collection[TreeNode]) -> None:
        """Keep only the subtrees `nodes` of what is computed of the step after `step`."""
        self.partial = self.partial.only(nodes) if self.partial and self.partial.step == step + 1 else None

    def apply_update(self) -> None:
        """Apply the gradients in the model, which are the global ones, and clear them."""
        self.discard_trial_step()
        self.optimizer.step()
        self.clear_gradients()

    def clear_gradients(self) -> None:
        """Clear all gradients: of trainable parameters that a user's optimizer does not hold they would add up."""
        self.optimizer.zero_grad()
        self.model.zero_grad()

    def discard_trial_step(self) -> None:
        """Clear the optimizer's state before its first update.

        To read an optimizer's state, torch makes it by a step with gradients and learning rate zero, which counts: a rank that saved or
        sent it would be one step ahead.
        """
        if self.optimizer_starts_empty and self.updates == 0:
            self.optimizer.state.clear()

    @property
    def updates(self) -> int:
        """Number of updates applied since step 0: steps that were not skipped."""
        return self.step - self.scale.skipped_updates - self.guard.skipped_updates

    def commit(self, report: StepReport, guard: LossGuard) -> None:
        self.step = report.step
        self.pending_step = report
        self.buffers_before = ()
        self.partial = None
        self.pending_update = None
        self.scale = report.scale
        self.guard = guard
        self.reports.append(report)

    @torch.no_grad()
    def rewind(self) -> None:
        """Undo what an unfinished or skipped step left in the model: running statistics and gradients.

        Parameters change only when a step commits. `partial` stays.
        """
        self.clear_gradients()
        if self.buffers_before:
            restore_buffers(self.task.model, self.buffers_before)
        self.buffers_before = ()
        self.set_training_mode()

    def set_training_mode(self) -> None:
        """Put the model into training mode, but for what its user has frozen and put into evaluation mode."""
        self.model.train()
        for module in self.in_evaluation:
            module.eval()

    def update_best(self, policy: CheckpointPolicy, metrics: dict[str, float]) -> None:
        value = metrics.get(policy.metric)
        if value is not None and math.isfinite(value):
            candidates = [value] if self.best is None else [value, self.best]
            self.best = min(candidates) if policy.mode == "min" else max(candidates)


def new_state(spec: JobSpec, device: torch.device, cache: Path, build: Build = at_once) -> TrainState:
    """Return the state at step 0, built from the seed alone and so the same on every rank. `build` is for models that are to be sharded."""
    if spec.compile:
        require_compiler(device)
    seed_everything(device, derived.training_of(spec).seed, 0, 0)
    task = make_task(spec, cache, build)
    if spec.compile:
        compile_blocks(task.model, reproducible=derived.is_reproducible(spec))
    if not spec.parallelism.in_parts:  # which takes its part of it there: all of it may be too large
        task.model.to(device)
    feed = open_feed(task.train, spec)
    return TrainState(
        task=task,
        optimizer=make_optimizer(spec, task),
        device=device,
        total_steps=total_steps(derived.training_of(spec), feed.epoch_samples),
        feed=feed,
        scale=loss_scale_for(spec.precision),
        compiled=not spec.compile,
    )


def building(spec: JobSpec) -> Build:
    """Return how a rank builds its model. A model that is only sharded is never whole on a rank; tensor and context parallelism need its
    numbers."""
    return defer if spec.parallelism.shards and not spec.parallelism.is_model_parallel else at_once


def make_optimizer(spec: JobSpec, task: Task) -> torch.optim.Optimizer:
    return build_optimizer(spec.optimizer, task.model) if task.optimizer is None else own_optimizer(task)


def rebuild_optimizer(state: TrainState, spec: JobSpec) -> None:
    """Give `state` an optimizer of the parameters that its model has now. The new optimizer has no state.

    Sharding replaces parameters, and a pipeline keeps only some of them.
    """
    held = {parameter for group in state.optimizer.param_groups for parameter in group["params"]}
    if not held <= set(state.task.model.parameters()):
        state.set_optimizer(make_optimizer(spec, state.task))


def make_task(spec: JobSpec, cache: Path, build: Build = at_once) -> Task:
    """Return the task of a job that Paceline's trainer runs. Raises TypeError for a script, which has none."""
    match spec.workload:
        case BuiltinWorkload(model, data):
            return builtin_task(model, data, cache, build)
        case EntrypointWorkload(entrypoint):
            return load_entrypoint(entrypoint, spec)
        case ScriptWorkload():
            raise TypeError(f"job {spec.name} runs a script, which has no task")


def seed_everything(device: torch.device, seed: int, step: int, micro_batch: int) -> None:
    """Make all randomness a function of (seed, step, micro-batch), wherever it runs; the data have a generator of their own.

    Not `torch.manual_seed`: without a GPU in use, each call queues itself, with a stack trace, for a GPU that may come.
    """
    own_seed = derive_seed(seed, step, micro_batch)
    torch.default_generator.manual_seed(own_seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(own_seed)
    random.seed(own_seed)
    np.random.seed(own_seed % 2**32)
