"""Buffers that a forward pass changes, such as batch norm's running statistics, kept free of who computed which micro-batch.

Every micro-batch of a step starts from the buffers as the step found them. What each adds to them is averaged over the
micro-batches, in the same tree as the gradients, and applied once: for batch norm, one update with the mean statistics of the global batch's
micro-batches. Adding changes rather than averaging values leaves a buffer that nobody changes as it is, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class RunningStatistics:
    def __init__(self, model: nn.Module, micro_batches: int) -> None:
        saved = model.state_dict().keys()  # buffers that no checkpoint holds are constants or caches
        buffers = [buffer for name, buffer in model.named_buffers() if name in saved]
        self.averaged = [buffer for buffer in buffers if buffer.is_floating_point()]
        counters = [buffer for buffer in buffers if not buffer.is_floating_point()]  # of steps now: every rank counts alike
        self._all = [*self.averaged, *counters]
        self._before = [buffer.clone() for buffer in self._all]
        self._micro_batches = micro_batches

    @torch.no_grad()
    def begin_step(self) -> None:
        for before, buffer in zip(self._before, self._all, strict=True):
            before.copy_(buffer)

    @torch.no_grad()
    def rewind(self) -> None:
        for before, buffer in zip(self._before, self._all, strict=True):
            buffer.copy_(before)

    @torch.no_grad()
    def changes(self) -> list[Tensor]:
        """One micro-batch's part of the mean change of each averaged buffer."""
        return [(buffer - before).div_(self._micro_batches) for buffer, before in zip(self.averaged, self._before, strict=False)]

    @torch.no_grad()
    def apply(self, changes: Sequence[Tensor]) -> None:
        for buffer, before, change in zip(self.averaged, self._before, changes, strict=False):
            torch.add(before, change, out=buffer)
