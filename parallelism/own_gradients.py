"""Show a rank's own gradients to an observer: what backward has left, before ranks exchange it.

They are of the rank's part of the loss, at the loss's scale. Where ranks communicate within backward they are what backward hands over: under FSDP the shard
of the sum over the shards' ranks, of a Partial DTensor this rank's part of the sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

#: Gets a parameter and its gradient, in the thread of the training or of autograd. It reads the gradient at once, and does not change it.
GradientObserver = Callable[[nn.Parameter, Tensor], None]


def show_gradients(observe: GradientObserver | None, parameters: Iterable[nn.Parameter]) -> None:
    """Show the gradients in `parameters`; those that backward has not reached have none."""
    if observe is None:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            observe(parameter, parameter.grad)


@torch.no_grad()
def show_sums(observe: GradientObserver | None, parameters: Sequence[nn.Parameter], sums: Sequence[Sequence[Tensor]]) -> None:
    """Show each parameter the total of `sums`, whose first tensors are those of `parameters`. They stay as they are."""
    if observe is None or not sums:
        return
    for parameter, *parts in zip(parameters, *sums, strict=False):
        observe(parameter, functools.reduce(torch.add, parts))
