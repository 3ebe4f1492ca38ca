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
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from distributed.env import intra_op_threads, position
from distributed.launch import device_of, join_launched
from parallelism import mesh
from parallelism.apply import parallelize
from parallelism.precision import autocast
from training.entrypoint import unfit_model
from training.errors import InvalidInputError
from training.own_loop.alike import begin_alike
from training.own_loop.batches import Criterion
from training.own_loop.meter import Arithmetic, Meter, Update
from training.own_loop.options import read_folder, read_options
from training.own_loop.recorders import recorders_for
from training.own_loop.saves import OwnVault, Stateful, Training, load, require_directory
from training.own_loop.step import Stepper


class Trainer:
    """`model` is a plain one on the CPU, built on every rank; all begin with rank 0's numbers. Afterwards `Trainer.model` is on `Trainer.device`:
    make optimizers of its parameters.

    strategy: single, ddp or fsdp, or the `parallelism` part of a job spec: {"strategy": "fsdp", "replicate": 2}
    mixed_precision: fp32, bf16, or fp16 with a loss scale of its own: an update whose gradients overflow is skipped
    gradient_accumulation_steps: batches of each rank in one update; gradients are their mean, over all ranks too
    gradient_clip_val: largest norm of all gradients together
    activation_checkpointing: none, selective, full; True is full
    cpu_offload: parameters, gradients and optimizer state stay in the host's memory (fsdp)
    checkpoint_dir: a folder that every rank sees
    log_dir: rank 0 writes TensorBoard's event files there; in a job the numbers are its curves in any case
    tokens_per_sample, flops_per_sample (forward and backward): for tokens/s and MFU
    seed: random numbers of the model's forward pass depend on it, the step and the rank alone

    Raises InvalidInputError for what cannot be, LaunchError for a place in the world that cannot be.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        strategy: str | Mapping[str, object] = "ddp",
        mixed_precision: str = "fp32",
        gradient_accumulation_steps: int = 1,
        gradient_clip_val: float | None = None,
        activation_checkpointing: bool | str = "none",
        cpu_offload: bool = False,
        checkpoint_dir: str | Path | None = None,
        log_dir: str | Path | None = None,
        tokens_per_sample: int | None = None,
        flops_per_sample: float | None = None,
        seed: int = 0,
    ) -> None:
        self._options = read_options(
            strategy=strategy,
            mixed_precision=mixed_precision,
            gradient_accumulation_steps=gradient_accumulation_steps,
            gradient_clip_val=gradient_clip_val,
            activation_checkpointing=activation_checkpointing,
            cpu_offload=cpu_offload,
            seed=seed,
        )
        require_fit(model)
        place = position()
        sizes = self._options.degrees(place.world_size)
        self.device = device_of(place)
        if place.world_size > 1:  # ranks of one machine share its cores
            torch.set_num_threads(intra_op_threads())
        self._group = join_launched(place, self.device, mesh.lines(sizes))
        begin_alike(model, self._group)
        self.model = model
        wrapped = parallelize(model, sizes, self.device, self._group, reproducible=False, choices=self._options.choices)
        self._stepper = Stepper(self._options, model, wrapped, self._group, self.device)
        self._known: torch.optim.Optimizer | None = None
        self._vault: OwnVault | None = None
        self._directory = read_folder(checkpoint_dir)
        sample = Arithmetic(tokens_per_sample, flops_per_sample)
        recorders = recorders_for(place, read_folder(log_dir))
        self._meter = Meter(place, self.device, self._options.precision, sample, recorders)
        self._closed = False

    @property
    def next_step(self) -> int:
        """That `train_step` wants: batches that every rank has trained on so far."""
        return self._stepper.step

    def train_step(self, batch: Any, optimizer: torch.optim.Optimizer, criterion: Criterion | None, step: int) -> Update | None:
        """One batch of this rank's: its gradients are added up, and every `gradient_accumulation_steps`-th updates the parameters. What that
        update came to; None for the batches before it, which wait for no other rank.

        `batch`: (inputs, targets), or anything else, which is both; inputs that are a mapping are the model's named arguments, a tuple
        its positional ones. `criterion(outputs, targets)` returns the mean over the batch; None takes `outputs.loss`. `step` counts
        calls from 0 over all epochs, in the order of `next_step`. Every rank must call this equally often.
        """
        self._require_next(step)
        self._require_own(optimizer)
        if not self._stepper.add(batch, criterion):
            return None
        update = self._stepper.update(optimizer)
        self._meter.note(update)
        return update

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[nn.Module]:
        """The model to evaluate with: in evaluation mode, without gradients, in this trainer's precision, its running statistics the mean of
        all ranks'. Every rank must enter it, and with fsdp make as many passes as the others."""
        modes = [(module, module.training) for module in self.model.modules()]
        with self._stepper.standing_still():
            self._stepper.wrapped.settle_buffers()
            self.model.eval()
            try:
                with torch.no_grad(), autocast(self._options.precision, self.device):
                    yield self.model
            finally:
                for module, training in modes:
                    module.training = training

    def save_checkpoint(
        self, optimizer: torch.optim.Optimizer, *, metrics: Mapping[str, float] | None = None, scheduler: Stateful | None = None
    ) -> Path:
        """All ranks together, between updates. The new folder in `checkpoint_dir`: written, hashed and published as a whole, or not at all
        (CheckpointSaveError). Any strategy on any number of ranks can load it."""
        self._require_own(optimizer)
        if self.next_step == 0 or self._stepper.pending:
            every = self._options.accumulation
            raise InvalidInputError(f"after {self.next_step} batches nothing can be saved, only after an update: every {every} of them")
        with self._stepper.standing_still():
            self._meter.flush()
            self._stepper.wrapped.settle_buffers()
            training = Training(self.model, optimizer, scheduler)
            return self._open_vault().save(training, self.next_step, self._stepper.scale, metrics or {})

    def load_checkpoint(
        self, optimizer: torch.optim.Optimizer, path: str | Path | None = None, *, scheduler: Stateful | None = None
    ) -> int:
        """All ranks together: `path`, or the newest checkpoint in `checkpoint_dir` whose every hash verifies; an empty directory changes
        nothing. The step to go on with, `next_step`. Raises CheckpointCorruptError for a damaged `path`, NoUsableCheckpointError where
        all are damaged."""
        self._require_own(optimizer)
        training = Training(self.model, optimizer, scheduler)
        with self._stepper.standing_still():
            found = self._open_vault().load_newest(training) if path is None else load(training, Path(path), self._group)
        self._vault = None  # what is saved from now on is of another generation
        step, scale = (0, None) if found is None else (found.step, found.loss_scale)
        self._stepper.go_on_from(step, self._stepper.scale.resumed(scale), optimizer)
        return self.next_step

    def performance_metrics(self) -> dict[str, float]:
        """Of the newest hundred updates, by the names that a job's curves have: loss, gradient_norm, samples_per_second, step_seconds and
        its parts (medians), memory_bytes, peak_memory_bytes; tokens_per_second and mfu where they can be known. Empty before the first."""
        return self._meter.summary()

    def close(self) -> None:
        """Once every rank is done: leave the group. What was recorded is written. Harmless the second time."""
        if self._closed:
            return
        self._closed = True
        self._meter.flush()
        self._group.part()
        del self._stepper
        self._group.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """A rank that fails leaves its group standing: closing its sockets, as it ends, is what frees its peers."""
        if kind is None:
            self.close()

    def _open_vault(self) -> OwnVault:
        """Not before it is used: a script that neither saves nor loads writes nothing."""
        if self._vault is None:
            self._vault = OwnVault(require_directory(self._directory), self._group, self._options)
        return self._vault

    def _require_next(self, step: int) -> None:
        if step != self.next_step:
            raise InvalidInputError(
                f"train_step was given step {step}, but {self.next_step} is next: steps count this rank's batches from 0 over all epochs, and go on "
                "where a checkpoint was saved; pass trainer.next_step, and skip the batches that were used"
            )

    def _require_own(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer is self._known:
            return
        own = set(self.model.parameters())
        if any(parameter not in own for group in optimizer.param_groups for parameter in group["params"]):
            raise InvalidInputError(
                "the optimizer has parameters that are not the model's; make it after the Trainer, of trainer.model.parameters(): strategy "
                "fsdp puts others in the place of those that the model was built with"
            )
        self._known = optimizer


def require_fit(model: object) -> None:
    problem = next(unfit_model(model), None)
    if problem is not None:
        raise InvalidInputError(problem.replace("Task.model", "the model"))
    assert isinstance(model, nn.Module)
    if any(parameter.is_meta for parameter in model.parameters()):
        raise InvalidInputError("the model is on the meta device, without numbers; build it on the CPU")
