"""What the ranks tell each other in every step: one small all-reduce, which travels while the last backward computes.

Each rank adds what it was asked for and, for each micro-batch that it computed, its part of the loss and a one. So the sum is
also the evidence that every sample of the step was used exactly once, whoever computed it and in whichever generation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from distributed.process_group import Group
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


@dataclass(frozen=True)
class Agreed:
    """The same on every rank."""

    loss: float  # mean over the global batch
    pause: bool
    checkpoint: bool
    leave: bool  # every rank knows its next place, or that it has none: nobody stops alone


class News:
    """Of one rank in one step; `partial` is what it brings along from an earlier generation."""

    def __init__(self, partial: PartialStep, micro_batches: int, device: torch.device) -> None:
        self._step, self._micro_batches = partial.step, micro_batches
        self._losses = torch.zeros(micro_batches, dtype=torch.float64, device=device)
        self._times = [0.0] * micro_batches
        for node in partial.sums:
            for index in node.leaves(micro_batches):
                self.add(index, partial.losses[index])

    def add(self, index: int, loss: Tensor) -> None:
        """Micro-batch `index` is part of this rank's sums, or will be when its backward returns."""
        self._losses[index] = loss.detach()
        self._times[index] += 1

    def send(self, group: Group, requests: Requests) -> Callable[[], Tensor]:
        """Begin to tell the others; call the answer to wait for what all of them tell, and `read` it."""
        wanted = [float(requests.pause_wanted), float(requests.checkpoint_wanted), float(requests.leave_wanted)]
        numbers = torch.tensor([*wanted, *self._times], dtype=torch.float64, device=self._losses.device)
        return group.start_sum(torch.cat([numbers, self._losses]))

    def read(self, sums: Tensor, ranks: int) -> Agreed:
        """What `ranks` ranks have told. Raises SampleAccountingError where a micro-batch is missing, or is there twice."""
        pause, checkpoint, leaving, *rest = sums.tolist()
        times, losses = rest[: self._micro_batches], rest[self._micro_batches :]
        require_once_each(self._step, times)
        return Agreed(tree_sum(losses, operator.add), pause=pause > 0, checkpoint=checkpoint > 0, leave=leaving == ranks)


def require_once_each(step: int, times: Sequence[float]) -> None:
    wrong = [f"{count:g} times micro-batch {index}" for index, count in enumerate(times) if count != 1]
    if wrong:
        raise SampleAccountingError(
            f"step {step} would use {', '.join(wrong)}; each of its {len(times)} must be used exactly once. The step was not applied: the job "
            "can go on from its newest checkpoint. This is a fault of Paceline, please report it"
        )
