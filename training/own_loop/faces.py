"""`DistributedTrainer` and `EnhancedDistributedTrainer`: `paceline.Trainer` under the names and with the calls that many loops are written with.

They differ from the Trainer in what such loops do: the optimizer may be made before them, `step` may begin at 0 in each epoch, every call of
`train_step` tells its loss, and an epoch may end in the middle of an update.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from paceline.distributed.env import position
from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.adoption import ReplacedParameters
from paceline.training.own_loop.batches import Criterion
from paceline.training.own_loop.meter import TrainedBatch
from paceline.training.own_loop.saves import Stateful
from paceline.training.own_loop.strategy import ChosenStrategy
from paceline.training.own_loop.trainer import Trainer, require_fit

COMPUTE_PARTS = ("forward_seconds", "backward_seconds", "optimizer_seconds")


class StepMetrics(Mapping[str, float]):
    """Metrics of one call of `train_step`, by name.

    loss: of all ranks' batches where the call has updated the parameters, else of this rank's batch; compute_time, communication_time,
    data_time, step_time: seconds of this call (communication_time is NaN where it is not known: on GPUs with fsdp); learning_rate and
    gradient_norm, where it has updated. `float(metrics)` is the loss.
    """

    def __init__(self, batch: TrainedBatch) -> None:
        update, parts = batch.update, batch.parts
        self._values = {
            "loss": batch.loss.item() if update is None else update.loss,
            "compute_time": sum(parts[name] for name in COMPUTE_PARTS),
            "communication_time": parts.get("communication_seconds", math.nan),
            "data_time": parts["data_seconds"],
            "step_time": sum(parts.values()),
        }
        if update is not None:
            self._values |= {"learning_rate": update.learning_rate, "gradient_norm": update.gradient_norm}

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __float__(self) -> float:
        return self._values["loss"]

    def __repr__(self) -> str:
        return f"StepMetrics({self._values})"


class TrainerFace:
    """The calls that both classes share. `trainer` is the Trainer behind them.

    mixed_precision: True is bf16, or fp16 on GPUs that lack bf16; enable_activation_checkpointing: Trainer's `activation_checkpointing`;
    `options`: further arguments of `paceline.Trainer`. Raises InvalidInputError and LaunchError as the Trainer does.
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: str | Mapping[str, object] = "ddp",
        mixed_precision: bool | str = False,
        gradient_accumulation_steps: int = 1,
        gradient_clip_val: float | None = None,
        enable_activation_checkpointing: bool | str = False,
        cpu_offload: bool = False,
        checkpoint_dir: str | Path | None = None,
        log_dir: str | Path | None = None,
        **options: Any,
    ) -> None:
        require_fit(model)
        self._replaced = ReplacedParameters(model)
        self.trainer = Trainer(
            model,
            strategy=strategy,
            mixed_precision=mixed_precision,
            gradient_accumulation_steps=gradient_accumulation_steps,
            gradient_clip_val=gradient_clip_val,
            activation_checkpointing=enable_activation_checkpointing,
            cpu_offload=cpu_offload,
            checkpoint_dir=checkpoint_dir,
            log_dir=log_dir,
            **options,
        )
        place = position()
        self.rank, self.local_rank, self.world_size = place.rank, place.local_rank, place.world_size
        self._newest_step: int | None = None
        #: Of the batches of an epoch: 1 where the loop begins with step 1.
        self._first_of_epoch = 0

    @property
    def model(self) -> nn.Module:
        """The model as it is trained: wrapped, or in shards."""
        return self.trainer.model

    @property
    def strategy(self) -> ChosenStrategy | None:
        """The strategy that `strategy="auto"` has chosen, with the reason; None where one was given."""
        return self.trainer.strategy

    @property
    def device(self) -> torch.device:
        """Where this rank's part of the model lies, and batches are moved to."""
        return self.trainer.device

    def _train(self, batch: Any, optimizer: torch.optim.Optimizer, criterion: Criterion | None, step: int | None) -> TrainedBatch:
        self._require_following(step)
        self._replaced.adopt(optimizer, self.model)
        done = self.trainer.train_batch(batch, optimizer, criterion, self.trainer.next_step)
        self._newest_step = step
        return done

    def _require_following(self, step: int | None) -> None:
        """Refuse a step that neither counts on over all epochs nor begins anew in each.

        Such a loop trains on other batches than its author thinks."""
        before = self._newest_step
        if before is None:
            self._first_of_epoch = 1 if step == 1 else 0
            return
        if step is None or step in (0, self._first_of_epoch, self.trainer.next_step) or step == before + 1:
            return
        raise InvalidInputError(
            f"train_step was given step {step} after {before}; count the batches of each epoch from the same number on, 0 or 1, or all batches up to {self.trainer.next_step} here"
        )

    def save_checkpoint(
        self,
        epoch: int,
        optimizer: torch.optim.Optimizer,
        loss: float | Tensor | StepMetrics,
        is_best: bool = False,
        *,
        scheduler: Stateful | None = None,
        loader: Stateful | None = None,
    ) -> Path:
        """Save a checkpoint, and return its folder in `checkpoint_dir`; `best` there leads to the newest that was saved with `is_best`.

        Collective. Gradients of an update that is under way are not saved: after `load_checkpoint` its batches count as trained on. Raises
        as `Trainer.save_checkpoint`.
        """
        self._replaced.adopt(optimizer, self.model)
        metrics = {"epoch": float(epoch), "loss": float(loss)}
        return self.trainer.save_within_update(optimizer, metrics=metrics, scheduler=scheduler, loader=loader, is_best=is_best)

    def load_checkpoint(
        self,
        optimizer: torch.optim.Optimizer,
        path: str | Path | None = None,
        *,
        scheduler: Stateful | None = None,
        loader: Stateful | None = None,
    ) -> int:
        """Load a checkpoint as `Trainer.load_checkpoint` does, and return the step to go on with."""
        self._replaced.adopt(optimizer, self.model)
        self._newest_step = None
        return self.trainer.load_checkpoint(optimizer, path, scheduler=scheduler, loader=loader)

    def get_performance_metrics(self) -> dict[str, float]:
        """Return `Trainer.performance_metrics()` with samples_per_second_per_gpu and communication_overhead_percent.

        The latter is the exposed communication's share of a step's median time, NaN where it is not known: on GPUs with fsdp. Empty before the
        first update."""
        metrics = self.trainer.performance_metrics()
        if not metrics:
            return {}
        return metrics | {
            "samples_per_second_per_gpu": metrics["samples_per_second"] / self.world_size,
            "communication_overhead_percent": 100.0 * metrics.get("communication_seconds", math.nan) / metrics["step_seconds"],
        }

    def evaluation(self) -> AbstractContextManager[nn.Module]:
        """Yield the model to evaluate with, as `Trainer.evaluation` does."""
        return self.trainer.evaluation()

    def close(self) -> None:
        """Leave the group once every rank is done, as `Trainer.close` does."""
        self.trainer.close()

    cleanup = close

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.trainer.__exit__(kind, error, trace)


class DistributedTrainer(TrainerFace):
    """A Trainer whose `train_step` returns the loss."""

    def __enter__(self) -> DistributedTrainer:
        return self

    def train_step(
        self, batch: Any, optimizer: torch.optim.Optimizer, criterion: Criterion | None = None, step: int | None = None
    ) -> Tensor:
        """Train on one batch of this rank, and return its loss, a scalar tensor without gradients.

        It is that of all ranks' batches where the call has updated the parameters, else of this rank's. Otherwise as `Trainer.train_step`."""
        done = self._train(batch, optimizer, criterion, step)
        return done.loss if done.update is None else torch.tensor(done.update.loss)


class EnhancedDistributedTrainer(TrainerFace):
    """A Trainer whose `train_step` returns metrics by name."""

    def __enter__(self) -> EnhancedDistributedTrainer:
        return self

    def train_step(
        self, batch: Any, optimizer: torch.optim.Optimizer, criterion: Criterion | None = None, step: int | None = None
    ) -> StepMetrics:
        """Train on one batch of this rank, and return its metrics: `metrics["loss"]`, `["compute_time"]`, `["communication_time"]`.

        Otherwise as `Trainer.train_step`."""
        return StepMetrics(self._train(batch, optimizer, criterion, step))
