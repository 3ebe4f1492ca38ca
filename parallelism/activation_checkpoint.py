"""Activations that backward computes again instead of keeping them: memory for time, and the same numbers to the last bit.

`full` keeps what goes into each block; `selective` also the results of its matrix products, convolutions and attention, so that only what
is cheap is computed again. Random numbers are drawn again from the state in which the block found them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Contexts = tuple[AbstractContextManager[object], AbstractContextManager[object]]

aten = torch.ops.aten
#: Where a block's time goes.
EXPENSIVE = frozenset(
    {
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten.baddbmm.default,
        aten.convolution.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
    }
)


def checkpoint_activations(blocks: Iterable[nn.Module], mode: Literal["none", "selective", "full"]) -> None:
    """In place, any number of times. The names of parameters stay what they are."""
    for block in blocks if mode != "none" else ():
        if not isinstance(block.forward, Recomputed):
            block.forward = Recomputed(block, selective=mode == "selective")


class Recomputed:
    """A block's forward pass, whose activations are not kept."""

    def __init__(self, block: nn.Module, *, selective: bool) -> None:
        self._forward = block.forward
        self._contexts = functools.partial(contexts_for, block, selective=selective)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return checkpoint(self._forward, *inputs, use_reentrant=False, context_fn=self._contexts, **named)


def contexts_for(block: nn.Module, *, selective: bool) -> Contexts:
    """Around the first computation, and around the second one, which must not count in running statistics again."""
    first: AbstractContextManager[object] = contextlib.nullcontext()
    again: AbstractContextManager[object] = contextlib.nullcontext()
    if selective:
        first, again = create_selective_checkpoint_contexts(keep_or_recompute)  # type: ignore[no-untyped-call]
    return first, both(unchanged_buffers(block), again)  # what the inner one sees must be what it saw the first time


def keep_or_recompute(context: Any, operation: Callable[..., Any], *inputs: Any, **named: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in EXPENSIVE else CheckpointPolicy.PREFER_RECOMPUTE


@contextlib.contextmanager
def both(outer: AbstractContextManager[object], inner: AbstractContextManager[object]) -> Iterator[None]:
    with outer, inner:
        yield


@contextlib.contextmanager
def unchanged_buffers(module: nn.Module) -> Iterator[None]:
    """What a forward pass in here does to running statistics is undone."""
    before = [buffer.clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(module.buffers(), before, strict=True):
                buffer.copy_(value)
