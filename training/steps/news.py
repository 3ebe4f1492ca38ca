"""What the ranks tell each other in every step: one small all-reduce, which travels while the last backward computes.

Each rank adds what it was asked for and, for each micro-batch that it computed, its part of the loss and a one; of ranks that compute the
same, one speaks. So the sum is also the evidence that every sample of the step was used exactly once, whoever computed it and in whichever
generation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from distributed.process_group import Group
from parallelism.plan import Coordinates
from parallelism.tree import tree_sum
from training.errors import SampleAccountingError
from training.state import PartialStep


class Requests(Protocol):
    """What somebody wants done at the next step boundary that all ranks agree on."""

    @property
    def pause_wanted(self) -> bool: ...
    @property
    def checkpoint_wanted(self) -> bool: ...
    @property
    def leave_wanted(self) -> bool: ...
    @property
    def work_is_done(self) -> bool:
        """Of the save under way: `saves.py`."""


@dataclass(frozen=True)
class Agreed:
    """The same on every rank."""

    loss: float  # mean over the global batch
    pause: bool
    checkpoint: bool
    leave: bool  # every rank knows its next place, or that it has none: nobody stops alone
    written: bool = False  # every rank has done its work of the save under way


class News:
    """Of one rank in one step; `partial` is what it brings along from an earlier generation."""

    def __init__(self, partial: PartialStep, micro_batches: int, coordinates: Coordinates, device: torch.device) -> None:
        self._step, self._micro_batches, self._coordinates = partial.step, micro_batches, coordinates
        self._losses = torch.zeros(micro_batches, dtype=torch.float64, device=device)
        self._times = [0.0] * micro_batches
        for node in partial.sums:
            for index in node.leaves(micro_batches):
                self.add(index, partial.losses[index])

    def add(self, index: int, loss: Tensor) -> None:
        """Micro-batch `index` is part of this rank's sums, or will be when its backward returns."""
        if self._coordinates.speaks:
            self._losses[index] = loss.detach()
            self._times[index] += 1

    def send(self, group: Group, requests: Requests) -> Callable[[], Tensor]:
        """Begin to tell the others; call the answer to wait for what all of them tell, and `read` it."""
        wanted = (requests.pause_wanted, requests.checkpoint_wanted, requests.leave_wanted, requests.work_is_done)
        # From pinned memory a GPU fetches them when it comes to it; else the host would wait here for all that the GPU has still to do.
        numbers = torch.tensor([*map(float, wanted), *self._times], dtype=torch.float64, pin_memory=self._losses.is_cuda)
        return group.start_sum(torch.cat([numbers.to(self._losses.device, non_blocking=True), self._losses]))

    def read(self, sums: Tensor, ranks: int) -> Agreed:
        """What `ranks` ranks have told. Raises SampleAccountingError where a micro-batch is missing, or is there twice."""
        pause, checkpoint, leaving, done, *rest = sums.tolist()
        times, losses = rest[: self._micro_batches], rest[self._micro_batches :]
        parts = self._coordinates.degrees.context  # of each micro-batch: a rank has only its part of the sequences
        require_once_each(self._step, [count / parts for count in times])
        loss = tree_sum(losses, operator.add)
        return Agreed(loss, pause=pause > 0, checkpoint=checkpoint > 0, leave=leaving == ranks, written=done == ranks)


def require_once_each(step: int, times: Sequence[float]) -> None:
    wrong = [f"{count:g} times micro-batch {index}" for index, count in enumerate(times) if count != 1]
    if wrong:
        raise SampleAccountingError(
            f"step {step} would use {', '.join(wrong)}; each of its {len(times)} must be used exactly once. The step was not applied: the job "
            "can go on from its newest checkpoint. This is a fault of Paceline, please report it"
        )
