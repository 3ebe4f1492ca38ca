"""Buffers that a forward pass changes, such as batch norm's running statistics, kept free of who computed which micro-batch.

Every micro-batch of a step starts from the buffers as the step found them. What each adds to them is averaged over the
micro-batches, in the same tree as the gradients, and applied once: for batch norm, one update with the mean statistics of the global batch's
micro-batches. Adding changes rather than averaging values leaves a buffer that nobody changes as it is, to the bit.
Counters are averaged alike, since a rank may have no micro-batch of its own to count: as floating point, which adds small whole
numbers up exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class RunningStatistics:
    def __init__(self, model: nn.Module) -> None:
        saved = model.state_dict().keys()  # buffers that no checkpoint holds are constants or caches
        buffers = [buffer for name, buffer in model.named_buffers() if name in saved]
        self._averaged = [buffer for buffer in buffers if is_inexact(buffer)]
        self._counters = [buffer for buffer in buffers if not is_inexact(buffer)]
        self._all = [*self._averaged, *self._counters]
        self._before = [buffer.clone() for buffer in self._all]

    @torch.no_grad()
    def begin_step(self) -> None:
        for before, buffer in zip(self._before, self._all, strict=True):
            before.copy_(buffer)

    @torch.no_grad()
    def rewind(self) -> None:
        for before, buffer in zip(self._before, self._all, strict=True):
            buffer.copy_(before)

    def rewind_aside(self) -> None:
        """The same in memory of its own, where a forward pass is still to be gone back through, and may have kept what it found."""
        for before, buffer in zip(self._before, self._all, strict=True):
            buffer.data = before.clone()

    @torch.no_grad()
    def changes(self, micro_batches: int) -> list[Tensor]:
        """One micro-batch's part of the mean change of each buffer; of counters its change."""
        parts = [(buffer - before).div_(micro_batches) for buffer, before in zip(self._averaged, self._before, strict=False)]
        before_counters = self._before[len(self._averaged) :]
        counts = [(counter.double() - before.double()).float() for counter, before in zip(self._counters, before_counters, strict=True)]
        return parts + counts

    @torch.no_grad()
    def apply(self, changes: Sequence[Tensor], micro_batches: int) -> None:
        """The sums of all micro-batches' `changes`."""
        for buffer, before, change in zip(self._all, self._before, changes, strict=True):
            if is_inexact(buffer):
                torch.add(before, change, out=buffer)
            else:
                buffer.copy_(before.double() + (change.double() / micro_batches).round())


def is_inexact(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
