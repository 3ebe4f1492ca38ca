"""Keep buffers that a forward pass changes, such as batch norm's running statistics, independent of which rank computed which
micro-batch.

Every micro-batch of a step starts from the buffers as they were at the start of the step. Its changes to them are averaged over the
micro-batches, in the same tree as the gradients, and applied once: for batch norm, one update with the mean statistics of the global
batch's micro-batches. Because changes are averaged instead of values, a buffer that no micro-batch changes keeps its bits. Counters are
averaged too, since a rank may have no micro-batch to count: as floating point, which adds small whole numbers exactly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn


class RunningStatistics:
    """The buffers of a model that checkpoints hold, with their values at the start of the step."""

    def __init__(self, model: nn.Module) -> None:
        buffers = saved_buffers(model)
        self._averaged = [buffer for buffer in buffers if is_inexact(buffer)]
        self._counters = [buffer for buffer in buffers if not is_inexact(buffer)]
        self._all = [*self._averaged, *self._counters]
        self._before = [buffer.clone() for buffer in self._all]

    @property
    def buffers(self) -> list[Tensor]:
        """The buffers, in the order of `changes`."""
        return self._all

    @torch.no_grad()
    def begin_step(self) -> None:
        """Remember the buffers' values as those at the start of the step."""
        for before, buffer in zip(self._before, self._all, strict=True):
            before.copy_(buffer)

    @torch.no_grad()
    def rewind(self) -> None:
        """Reset the buffers to their values at the start of the step, in place."""
        for before, buffer in zip(self._before, self._all, strict=True):
            buffer.copy_(before)

    def rewind_into_copies(self) -> None:
        """Reset the buffers as `rewind` does, in new memory: a pending backward pass may have saved the old tensors."""
        for before, buffer in zip(self._before, self._all, strict=True):
            buffer.data = before.clone()

    @torch.no_grad()
    def changes(self, micro_batches: int) -> list[Tensor]:
        """Return one micro-batch's share of the mean change of each buffer, and its change of each counter."""
        parts = [change_of(buffer, before).div_(micro_batches) for buffer, before in zip(self._averaged, self._before, strict=False)]
        before_counters = self._before[len(self._averaged) :]
        counts = [(counter.double() - before.double()).float() for counter, before in zip(self._counters, before_counters, strict=True)]
        return parts + counts

    @torch.no_grad()
    def apply(self, changes: Sequence[Tensor], micro_batches: int) -> None:
        """Apply the sums of all micro-batches' `changes` to the buffers."""
        for buffer, before, change in zip(self._all, self._before, changes, strict=True):
            if is_inexact(buffer):
                torch.add(before, change, out=buffer)
            else:
                counted = before.double() + (change.double() / micro_batches).round()
                buffer.copy_(torch.where(change == 0, before, counted.to(before.dtype)))  # double precision ends at 2^53


@contextlib.contextmanager
def unchanged_buffers(module: nn.Module, *, is_pending: bool = False) -> Iterator[None]:
    """Undo what the block does to the buffers of `module`, such as running statistics. `is_pending`: a backward pass of the block is still to
    come and may have saved them, so the old values go to new memory.

    No state dict tells which of them checkpoints hold: to make one, a sharded model gives up its gathered parameters, and the ranks that make none
    would gather less often than the others.
    """
    before = [buffer.clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        restore_buffers(module, before, in_new_memory=is_pending)


def saved_buffers(model: nn.Module) -> list[Tensor]:
    """Return the buffers that checkpoints hold. Those that they leave out are constants or caches, of another size on each rank."""
    saved = model.state_dict().keys()
    return [buffer for name, buffer in model.named_buffers() if name in saved]


@torch.no_grad()
def restore_buffers(model: nn.Module, before: Sequence[Tensor], *, in_new_memory: bool = False) -> None:
    """Reset the model's buffers to copies that were made of all of them. A cache that has grown since then stays as it is."""
    for buffer, copy in zip(model.buffers(), before, strict=True):
        if buffer.shape != copy.shape:
            continue
        if in_new_memory:
            buffer.data = copy
        else:
            buffer.copy_(copy)


def change_of(buffer: Tensor, before: Tensor) -> Tensor:
    """Return what was added to `before`: nothing where both are equal, infinities too, as those of an attention mask."""
    return torch.where(buffer == before, torch.zeros_like(buffer), buffer - before)


def is_inexact(tensor: Tensor) -> bool:
    """Whether `tensor` holds floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()
