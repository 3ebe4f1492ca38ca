"""The largest batch of a rank that fits its memory, found by passes that change nothing (`Trainer.find_batch_size`).

The search is that of `micro_batch_size: auto` in jobs: all ranks try the same sizes and go by the rank that needs most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
import torch

from paceline.distributed.env import Position
from paceline.distributed.process_group import Group
from paceline.parallelism.words import size as in_words
from paceline.training.autotune.memory_peak import peak_of
from paceline.training.autotune.micro_batch import MicroBatchSearch, succeeds
from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.batches import Criterion
from paceline.training.own_loop.saves import TrainingObjects
from paceline.training.own_loop.step import OwnLoopStepRunner
from paceline.training.saving.shards import put_tensors, tensors_of

#: Makes a batch of so many samples: real ones, since their sizes count.
BatchOf = Callable[[int], Any]


def sizes_up_to(largest: int) -> list[int]:
    """Return the powers of two below `largest`, and `largest`."""
    return [*(1 << power for power in range((largest - 1).bit_length())), largest]


def memory_of(place: Position, device: torch.device) -> int:
    """Return the bytes that this rank may fill: what is free on its GPU, or its share of the host's free memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    return int(psutil.virtual_memory().available) // place.local_world_size


class BatchTrials:
    """Forward and backward passes of one size after another. Within the block the optimizer has its state, as from the second step on."""

    def __init__(self, runner: OwnLoopStepRunner, training: TrainingObjects, group: Group, device: torch.device) -> None:
        self._runner, self._training, self._group, self._device = runner, training, group, device

    def __enter__(self) -> BatchTrials:
        self._fresh = not self._training.optimizer.state
        if self._fresh:
            put_tensors(self._training, tensors_of(self._training))  # makes it by a step of nothing
        return self

    def __exit__(self, *failure: object) -> None:
        if self._fresh:
            self._training.optimizer.state.clear()

    def peak(self, batch: Any, criterion: Criterion | None) -> int | None:
        """Return the bytes at the fullest moment of the fullest rank, or None where a rank ran out of memory. Collective."""
        wrapped = self._runner.wrapped
        self._worked = False
        peak = peak_of(
            self._training.model,
            self._training.optimizer,
            self._device,
            lambda: self._pass(batch, criterion),
            wrapped.exchange_buffer_bytes(1),
        )
        peaks = self._group.all_gather_object(peak if self._worked else None)
        self._runner.forget_trial(self._training.optimizer)
        wrapped.release_memory()
        return None if None in peaks else max(peaks)

    def _pass(self, batch: Any, criterion: Criterion | None) -> None:
        """Up to the exchange each rank is on its own, so that one which runs out of memory can say so; not where all compute in lockstep."""
        wrapped = self._runner.wrapped
        self._worked = succeeds(lambda: self._runner.try_batch(batch, criterion), catch=not wrapped.has_collective_forward)
        if all(self._group.all_gather_object(self._worked)):
            wrapped.finish_step()


def largest_batch(trials: BatchTrials, batch_of: BatchOf, criterion: Criterion | None, budget: int, largest: int) -> int:
    """Return the largest size up to `largest` that fits into `budget` bytes on every rank. Raises InvalidInputError if not even 1 does."""
    sizes = sizes_up_to(largest)
    with trials:
        for stretch in (sizes[1:], sizes[:1]):  # a single sample comes last: batch norm may refuse it
            search = MicroBatchSearch(stretch, budget)
            while (size := search.next) is not None:
                search.note(size, trials.peak(batch_of(size), criterion))
            if search.found is not None:
                return search.found
    raise InvalidInputError(
        f"not even a batch of 1 fits: {in_words(search.limit)} may be used of {in_words(budget)}; use activation_checkpointing, "
        "strategy fsdp on more ranks, or a smaller model"
    )
