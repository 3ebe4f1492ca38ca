"""`paceline.Trainer`: for people with a loop of their own, on one rank or on many.

    trainer = paceline.Trainer(model, strategy="fsdp", mixed_precision="bf16", checkpoint_dir="checkpoints")
    optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=1e-3)
    trainer.load_checkpoint(optimizer)
    while trainer.next_step < steps:
        trainer.train_step(batch_of(trainer.next_step), optimizer, criterion, trainer.next_step)
    trainer.save_checkpoint(optimizer)
    trainer.close()

The same code is a world of one in a plain interpreter, and one rank of many under torchrun and in a script job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from paceline.distributed.env import Position, intra_op_threads, position
from paceline.distributed.launch import LaunchedWorld, device_of, meet
from paceline.monitoring.checks import checked_value
from paceline.parallelism import mesh
from paceline.parallelism.apply import parallelize
from paceline.parallelism.precision import autocast
from paceline.training.entrypoint import give_own_memory, unfit_model
from paceline.training.errors import InvalidInputError
from paceline.training.optim.loss_guard import LossGuard
from paceline.training.optim.loss_scale import Unscaled
from paceline.training.own_loop.alike import broadcast_model
from paceline.training.own_loop.batch_size import BatchTrials, largest_batch, memory_of
from paceline.training.own_loop.batches import Criterion
from paceline.training.own_loop.foreign import is_foreign, put, read_foreign
from paceline.training.own_loop.meter import Meter, SampleSize, TrainedBatch, Update
from paceline.training.own_loop.options import read_folder, read_options
from paceline.training.own_loop.recorders import emit, recorders_for
from paceline.training.own_loop.retention import read_retention
from paceline.training.own_loop.saves import OwnCheckpointDirectory, Stateful, TrainingObjects, load, require_directory
from paceline.training.own_loop.step import OwnLoopStepRunner
from paceline.training.own_loop.strategy import ChosenStrategy, choose, state_bytes
from paceline.training.saving.collective_work import run_on_each_rank


class Trainer:
    """Trains a model in a loop of one's own, on one rank or many.

    `model` is a plain module on the CPU, built on every rank; all ranks begin with rank 0's numbers. Afterwards `Trainer.model` is on
    `Trainer.device`: make optimizers of its parameters.

    strategy: single, ddp or fsdp, or the `parallelism` part of a job spec: {"strategy": "fsdp", "replicate": 2}; auto is ddp where every
        rank has memory for the whole state, else fsdp, and `Trainer.strategy` says which and why
    mixed_precision: fp32, bf16, or fp16 with a loss scale of its own: an update whose gradients overflow is skipped; True is bf16, or fp16
        on GPUs that lack bf16
    gradient_accumulation_steps: batches of each rank in one update; gradients are their mean, over all ranks too
    gradient_clip_val: largest norm of all gradients together
    on_nan, on_spike: what becomes of an update whose loss or gradients are NaN or infinite, or whose loss is far above those before it: warn
        applies it; skip_update leaves model, optimizer and running statistics as they are, and goes on; stop raises BadLossError on every rank,
        and so does skip_update after 20 in a row
    activation_checkpointing: none, selective, full; True is full
    cpu_offload: parameters, gradients and optimizer state stay in the host's memory (fsdp)
    checkpoint_dir: a folder that every rank sees
    keep_last, keep_best: how many of the newest and of the best checkpoints stay there; keep_last=None keeps all. The best are those with
        the least `best_metric` of their `metrics` (best_mode "max": the greatest); the link `best` leads to the first of them. The newest whose
        parameters are finite stays in any case: after a NaN it is what to go back to
    log_dir: TensorBoard's event files, rank 0's there and the others' in rank-N; in a job the numbers are its curves in any case
    tokens_per_sample, flops_per_sample (forward and backward): for tokens/s and MFU
    seed: random numbers of the model's forward pass depend on it, the step and the rank alone

    Raises InvalidInputError for invalid options, and LaunchError for an impossible place in the world.
    """

    #: What strategy="auto" came to; None where the strategy was given.
    strategy: ChosenStrategy | None
    _known: torch.optim.Optimizer | None = None
    _checkpoints: OwnCheckpointDirectory | None = None
    _start_step = 0
    _closed = False

    def __init__(
        self,
        model: nn.Module,
        *,
        strategy: str | Mapping[str, object] = "ddp",
        mixed_precision: bool | str = "fp32",
        gradient_accumulation_steps: int = 1,
        gradient_clip_val: float | None = None,
        activation_checkpointing: bool | str = "none",
        cpu_offload: bool = False,
        checkpoint_dir: str | Path | None = None,
        keep_last: int | None = None,
        keep_best: int = 1,
        best_metric: str = "loss",
        best_mode: str = "min",
        log_dir: str | Path | None = None,
        tokens_per_sample: int | None = None,
        flops_per_sample: float | None = None,
        seed: int = 0,
        on_nan: str = "warn",
        on_spike: str = "warn",
    ) -> None:
        require_fit(model)
        place = position()
        self.device = device_of(place)
        meeting = meet(place)
        self.strategy = choose_together(model, meeting, self.device) if strategy == "auto" else None
        self._options = read_options(
            strategy=self.strategy.name if self.strategy else strategy,
            mixed_precision=mixed_precision,
            gradient_accumulation_steps=gradient_accumulation_steps,
            gradient_clip_val=gradient_clip_val,
            activation_checkpointing=activation_checkpointing,
            cpu_offload=cpu_offload,
            seed=seed,
            on_nan=on_nan,
            on_spike=on_spike,
        )
        self._retention = read_retention(keep_last, keep_best, best_metric, best_mode)
        sizes = self._options.degrees(place.world_size)
        _share_cores(place)
        self._group = meeting.join(self.device, mesh.axis_group_ranks(sizes))
        give_own_memory(model)
        broadcast_model(model, self._group)
        self.model = model
        wrapped = parallelize(model, sizes, self.device, self._group, reproducible=False, choices=self._options.choices)
        self._step_runner = OwnLoopStepRunner(self._options, model, wrapped, self._group, self.device)
        self._directory = read_folder(checkpoint_dir)
        sample = SampleSize(tokens_per_sample, flops_per_sample)
        self._meter = Meter(place, self.device, self._options.precision, sample, recorders_for(place, read_folder(log_dir)))

    @property
    def next_step(self) -> int:
        """Step that `train_step` expects next: the number of batches that every rank has trained on so far."""
        self._require_open()
        return self._step_runner.step

    def train_step(self, batch: Any, optimizer: torch.optim.Optimizer, criterion: Criterion | None, step: int) -> Update | None:
        """Train on one batch of this rank.

        Gradients are accumulated, and every `gradient_accumulation_steps`-th call updates the parameters and returns an `Update`. The calls
        before it return None, and wait for no other rank.

        `batch` is (inputs, targets), or any other object, which serves as both. Inputs that are a mapping are the model's named arguments,
        a tuple its positional ones. `criterion(outputs, targets)` returns the mean over the batch; with None, `outputs.loss` is used.
        `step` counts calls from 0 over all epochs, in the order of `next_step`. Every rank must call this equally often. Raises
        InvalidInputError for another step, for an optimizer with parameters that are not the model's, for a batch without samples, and for a
        loss that is not a scalar with gradients; and BadLossError on every rank as on_nan and on_spike ask, with the state of before the update.
        """
        return self.train_batch(batch, optimizer, criterion, step).update

    def train_batch(self, batch: Any, optimizer: torch.optim.Optimizer, criterion: Criterion | None, step: int) -> TrainedBatch:
        """Do as `train_step`, and return also what the batch itself came to: its loss on this rank, and its seconds by part."""
        self._require_next(step)
        self._require_own(optimizer)
        runner = self._step_runner
        before = runner.parts
        update = runner.update(optimizer) if runner.add(batch, criterion) else None
        if update is not None:
            self._meter.note(update)
        after = runner.parts if update is None else update.parts
        return TrainedBatch(runner.loss, {part: seconds - before.get(part, 0.0) for part, seconds in after.items()}, update)

    def find_batch_size(
        self, batch_of: Callable[[int], Any], optimizer: torch.optim.Optimizer, criterion: Criterion | None, *, largest: int
    ) -> int:
        """Return the largest number of samples, up to `largest`, that a batch of every rank can have within 90 % of its memory.

        Collective, between updates. `batch_of(samples)` makes a batch; sizes of powers of two, and `largest`, are tried by passes after
        which model, optimizer and random numbers are as before. Raises InvalidInputError if not even one sample fits, and where an update
        is under way. With fsdp a size that runs out of memory ends the ranks, since they cannot stop in the middle of a pass.
        """
        self._require_own(optimizer)
        if largest < 1:
            raise InvalidInputError(f"largest={largest} is less than 1; give the most samples that a batch may have")
        if self._step_runner.pending:
            raise InvalidInputError(f"after {self.next_step} batches an update is under way; look for a batch size before the first step")
        training = TrainingObjects(self.model, optimizer)
        with self._step_runner.standing_still():
            budget = min(self._group.all_gather_object(memory_of(position(), self.device)))
            trials = BatchTrials(self._step_runner, training, self._group, self.device)
            return largest_batch(trials, batch_of, criterion, budget, largest)

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[nn.Module]:
        """Yield the model to evaluate with, in evaluation mode, without gradients and in this trainer's precision.

        Running statistics are the mean over all ranks. Every rank must enter the block, and with fsdp make as many forward passes as the
        others.
        """
        modes = [(module, module.training) for module in self.model.modules()]
        with self._step_runner.standing_still():
            self._step_runner.wrapped.sync_buffers()
            self.model.eval()
            try:
                with torch.no_grad(), autocast(self._options.precision, self.device):
                    yield self.model
            finally:
                for module, training in modes:
                    module.training = training

    def sum_over_ranks(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums of named numbers over all ranks, which give the same names. Collective."""
        found = torch.tensor([values[name] for name in sorted(values)], dtype=torch.float64, device=self.device)
        with self._step_runner.standing_still():
            return dict(zip(sorted(values), self._group.start_sum(found)().tolist(), strict=True))

    def save_checkpoint(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        metrics: Mapping[str, float] | None = None,
        scheduler: Stateful | None = None,
        loader: Stateful | None = None,
        is_best: bool | None = None,
    ) -> Path:
        """Save a checkpoint, and return its new folder in `checkpoint_dir`.

        `is_best` says whether the link `best` leads to it from now on; None leaves that to the metric. Collective, between updates. The checkpoint is written, hashed and published as a whole or not at all. It can be loaded under any
        strategy, by any number of ranks. Raises TypeError for a metric that is not one number (a float, or a tensor with one element),
        InvalidInputError where no update has just been made, for an optimizer with parameters that are not the model's, and without a
        `checkpoint_dir`; and CheckpointSaveError on every rank if any of them could not save.
        """
        if self.next_step == 0 or self._step_runner.pending:
            every = self._options.accumulation
            raise InvalidInputError(f"after {self.next_step} batches nothing can be saved, only after an update: every {every} of them")
        return self.save_within_update(optimizer, metrics=metrics, scheduler=scheduler, loader=loader, is_best=is_best)

    def save_within_update(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        metrics: Mapping[str, float] | None = None,
        scheduler: Stateful | None = None,
        loader: Stateful | None = None,
        is_best: bool | None = None,
    ) -> Path:
        """Do as `save_checkpoint`, also where an update is under way.

        Its gradients are not saved: a run that goes on from there has trained on its batches for nothing.
        """
        self._require_own(optimizer)
        plain = {name: checked_value(name, value) for name, value in (metrics or {}).items()}
        with self._step_runner.standing_still():
            self._meter.flush()
            self._step_runner.wrapped.sync_buffers()
            training = TrainingObjects(self.model, optimizer, given(scheduler=scheduler, loader=loader))
            runner = self._step_runner
            return self._open_checkpoints().save(training, self.next_step, runner.scale, runner.guard, plain, is_best=is_best)

    def load_checkpoint(
        self,
        optimizer: torch.optim.Optimizer,
        path: str | Path | None = None,
        *,
        scheduler: Stateful | None = None,
        loader: Stateful | None = None,
    ) -> int:
        """Load `path`, or the newest checkpoint in `checkpoint_dir` that verifies, and return the step to go on with (`next_step`).

        `path` may also be a file of torch.save, of another program: a model's state_dict, alone or beside an optimizer's (`model_state_dict`,
        `optimizer_state_dict`, `global_step`). A scheduler and a loader are not read from such a file.
        Collective. An empty directory changes nothing. Raises CheckpointCorruptError for a damaged `path`, NoUsableCheckpointError if
        all checkpoints of the directory are damaged, and InvalidInputError for an optimizer with parameters that are not the model's, or
        without both `path` and `checkpoint_dir`.
        """
        self._require_own(optimizer)
        if path is not None and is_foreign(Path(path)):
            return self._load_foreign(optimizer, Path(path))
        training = TrainingObjects(self.model, optimizer, given(scheduler=scheduler, loader=loader))
        with self._step_runner.standing_still():
            found = self._open_checkpoints().load_newest(training) if path is None else load(training, Path(path), self._group)
        self._checkpoints = None  # what is saved from now on is of another generation
        step, scale, guard = (0, None, LossGuard()) if found is None else (found.step, found.loss_scale, found.loss_guard)
        return self._go_on_from(step, self._step_runner.scale.resumed(scale), guard, optimizer, path or self._directory)

    def _load_foreign(self, optimizer: torch.optim.Optimizer, path: Path) -> int:
        found = run_on_each_rank(self._group, lambda: read_foreign(path), InvalidInputError)
        put(found, self.model, optimizer, path)
        self._checkpoints = None
        return self._go_on_from(found.step or 0, self._step_runner.scale, LossGuard(), optimizer, path)

    def _go_on_from(self, step: int, scale: Unscaled, guard: LossGuard, optimizer: torch.optim.Optimizer, source: str | Path | None) -> int:
        """Go on from `step`, and tell the job of it, where nothing was trained before: of the best checkpoint at the end it is not told."""
        if self.next_step == self._start_step != step:
            self._start_step = step
            if self._group.rank == 0:
                emit("checkpoint_restored", {"directory": str(source), "step": step})
        self._step_runner.go_on_from(step, scale, guard, optimizer)
        return self.next_step

    def performance_metrics(self) -> dict[str, float]:
        """Return metrics of the newest hundred updates, by the names of a job's curves; empty before the first update.

        loss, gradient_norm, samples_per_second, step_seconds and its parts (medians), memory_bytes and peak_memory_bytes; tokens_per_second
        and mfu where they are known.
        """
        return self._meter.summary()

    def close(self) -> None:
        """Leave the group once every rank is done, with everything recorded written. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._meter.flush()
        self._group.barrier_and_leave()
        del self._step_runner
        self._group.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close after success. A rank that fails leaves its group standing: closing its sockets, as it ends, is what frees its peers."""
        if kind is None:
            self.close()

    def _open_checkpoints(self) -> OwnCheckpointDirectory:
        """Not before it is used: a script that neither saves nor loads writes nothing."""
        if self._checkpoints is None:
            self._checkpoints = OwnCheckpointDirectory(require_directory(self._directory), self._group, self._options, self._retention)
        return self._checkpoints

    def _require_next(self, step: int) -> None:
        if step != self.next_step:
            raise InvalidInputError(
                f"train_step was given step {step}, but {self.next_step} is next: steps count this rank's batches from 0 over all epochs, and go on "
                "where a checkpoint was saved; pass trainer.next_step, and skip the batches that were used"
            )

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidInputError("the Trainer is closed, and its rank has left the group; close it after the last call")

    def _require_own(self, optimizer: torch.optim.Optimizer) -> None:
        self._require_open()
        if optimizer is self._known:
            return
        own = set(self.model.parameters())
        if any(parameter not in own for group in optimizer.param_groups for parameter in group["params"]):
            raise InvalidInputError(
                "the optimizer has parameters that are not the model's; make it after the Trainer, of trainer.model.parameters(): strategy "
                "fsdp puts others in the place of those that the model was built with"
            )
        self._known = optimizer


def _share_cores(place: Position) -> None:
    """Leave ranks of the same machine their share of its cores."""
    if place.world_size > 1:
        torch.set_num_threads(intra_op_threads())


def choose_together(model: nn.Module, meeting: LaunchedWorld, device: torch.device) -> ChosenStrategy:
    """Choose the same strategy on all ranks, by the one with the least memory. Collective."""
    memory = min(meeting.numbers("memory", memory_of(meeting.place, device)))
    return choose(state_bytes(model), memory, meeting.place.world_size)


def given(**others: Stateful | None) -> dict[str, Stateful]:
    """Return what is not None."""
    return {name: other for name, other in others.items() if other is not None}


def require_fit(model: object) -> None:
    """Raise InvalidInputError if `model` cannot be trained: it is no module, has no parameters to train, or lies on the meta device."""
    problem = next(unfit_model(model), None)
    if problem is not None:
        raise InvalidInputError(problem.replace("Task.model", "the model"))
    assert isinstance(model, nn.Module)
    if any(parameter.is_meta for parameter in model.parameters()):
        raise InvalidInputError("the model is on the meta device, without numbers; build it on the CPU")
