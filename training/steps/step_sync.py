"""Exchange of the ranks in every step: one small all-reduce, which travels while the last backward computes.

Each rank adds its requests and, for each micro-batch that it computed, its part of the loss and a one. Of ranks that compute the same, one
reports. So the sum is also the evidence that every sample of the step was used exactly once, by any rank in any generation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from paceline.distributed.process_group import Group
from paceline.parallelism.plan import Coordinates
from paceline.parallelism.tree import tree_sum
from paceline.training.errors import SampleAccountingError
from paceline.training.state import PartialStep


class BoundaryRequests(Protocol):
    """Requests for the next step boundary that all ranks agree on."""

    @property
    def pause_wanted(self) -> bool: ...
    @property
    def checkpoint_wanted(self) -> bool: ...
    @property
    def leave_wanted(self) -> bool: ...
    @property
    def gradients_wanted(self) -> bool: ...
    @property
    def outcome_bytes(self) -> int | None:
        """Size of the outcome of this rank's work for the pending save, in bytes; None while it is at work, or no save is pending."""


@dataclass(frozen=True)
class StepConsensus:
    """Result of a step's all-reduce: the same on every rank."""

    loss: float  # mean over the global batch
    losses: tuple[float, ...]  # by micro-batch: its part of that mean
    pause: bool
    checkpoint: bool
    leave: bool  # every rank knows its next place, or that it has none: no rank stops alone
    gradients: bool  # every rank knows that the next step's gradients are to be recorded: all record the same one
    outcomes: tuple[int, ...] | None = None  # sizes by rank, once every rank has done its work for the pending save


class StepSync:
    """Collects one rank's contribution to the all-reduce of a step. `partial` is what the rank brings from an earlier generation."""

    def __init__(self, partial: PartialStep, micro_batches: int, coordinates: Coordinates, device: torch.device) -> None:
        self._step, self._micro_batches, self._coordinates = partial.step, micro_batches, coordinates
        self._losses = torch.zeros(micro_batches, dtype=torch.float64, device=device)
        self._times = [0.0] * micro_batches
        for node in partial.sums:
            for index in node.leaves(micro_batches):
                self.add(index, partial.losses[index])

    def add(self, index: int, loss: Tensor) -> None:
        """Count micro-batch `index` as part of this rank's sums, in which it is once its backward returns."""
        if self._coordinates.is_loss_reporter:
            self._losses[index] = loss.detach()
            self._times[index] += 1

    def send(self, group: Group, requests: BoundaryRequests) -> Callable[[], Tensor]:
        """Start the all-reduce. The returned function waits for the sums of all ranks, for `read`."""
        size, sizes = requests.outcome_bytes, [0.0] * group.world_size
        sizes[group.rank] = float(size or 0)
        wanted = (requests.pause_wanted, requests.checkpoint_wanted, requests.leave_wanted, requests.gradients_wanted, size is not None)
        # From pinned memory a GPU fetches them when it comes to it; else the host would wait here for all that the GPU has still to do.
        numbers = torch.tensor([*map(float, wanted), *sizes, *self._times], dtype=torch.float64, pin_memory=self._losses.is_cuda)
        return group.start_sum(torch.cat([numbers.to(self._losses.device, non_blocking=True), self._losses]))

    def read(self, sums: Tensor, ranks: int) -> StepConsensus:
        """Decode the sums over `ranks` ranks. Raises SampleAccountingError where a micro-batch is missing, or is there twice."""
        pause, checkpoint, leaving, recording, done, *rest = sums.tolist()
        sizes, times, losses = rest[:ranks], rest[ranks : -self._micro_batches], rest[-self._micro_batches :]
        parts = self._coordinates.degrees.context  # of each micro-batch: a rank has only its part of the sequences
        require_once_each(self._step, [count / parts for count in times])
        loss, outcomes = tree_sum(losses, operator.add), tuple(map(int, sizes)) if done == ranks else None
        return StepConsensus(
            loss,
            tuple(losses),
            pause=pause > 0,
            checkpoint=checkpoint > 0,
            leave=leaving == ranks,
            gradients=recording == ranks,
            outcomes=outcomes,
        )


def require_once_each(step: int, times: Sequence[float]) -> None:
    wrong = [f"{count:g} times micro-batch {index}" for index, count in enumerate(times) if count != 1]
    if wrong:
        raise SampleAccountingError(
            f"step {step} would use {', '.join(wrong)}; each of its {len(times)} must be used exactly once. The step was not applied: the job "
            "can go on from its newest checkpoint. This is a fault of Paceline, please report it"
        )
