"""Activation checkpointing: backward recomputes activations instead of keeping them. It trades time for memory and does not change any
bit.

`full` keeps the inputs of each block only; `selective` keeps also the results of its matrix products, convolutions and attention, so that
only cheap operations are computed again. Random numbers are drawn again from the generator state at the block's start.
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

from paceline.distributed import torch_private
from paceline.parallelism.running_statistics import unchanged_buffers

Contexts = tuple[AbstractContextManager[object], AbstractContextManager[object]]

aten = torch.ops.aten
#: The operations that take most of a block's time.
EXPENSIVE = (
    frozenset(
        {
            aten.mm.default,
            aten.addmm.default,
            aten.bmm.default,
            aten.baddbmm.default,
            aten.convolution.default,
        }
    )
    | torch_private.attention_operations()
)


def checkpoint_activations(blocks: Iterable[nn.Module], mode: Literal["none", "selective", "full"]) -> None:
    """Make `blocks` recompute their activations, in place. Harmless the second time. Names of parameters do not change."""
    for block in blocks if mode != "none" else ():
        if not isinstance(block.forward, RecomputedBlock):
            block.forward = RecomputedBlock(block, selective=mode == "selective")


class RecomputedBlock:
    """A block's forward pass that does not keep its activations for backward."""

    def __init__(self, block: nn.Module, *, selective: bool) -> None:
        self._forward = block.forward
        self._contexts = functools.partial(contexts_for, block, selective=selective)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return checkpoint(self._forward, *inputs, use_reentrant=False, context_fn=self._contexts, **named)


def contexts_for(block: nn.Module, *, selective: bool) -> Contexts:
    """Return the contexts around the first forward pass of `block` and around its recomputation, which must not change running statistics
    again.
    """
    first: AbstractContextManager[object] = contextlib.nullcontext()
    again: AbstractContextManager[object] = contextlib.nullcontext()
    if selective:
        first, again = create_selective_checkpoint_contexts(keep_or_recompute)  # type: ignore[no-untyped-call]
    return first, both(unchanged_buffers(block), again)  # the inner context must see the same operations as the first time


def keep_or_recompute(context: Any, operation: Callable[..., Any], *inputs: Any, **named: Any) -> CheckpointPolicy:
    """Keep the results of expensive operations, recompute those of all others."""
    return CheckpointPolicy.MUST_SAVE if operation in EXPENSIVE else CheckpointPolicy.PREFER_RECOMPUTE


@contextlib.contextmanager
def both(outer: AbstractContextManager[object], inner: AbstractContextManager[object]) -> Iterator[None]:
    with outer, inner:
        yield
