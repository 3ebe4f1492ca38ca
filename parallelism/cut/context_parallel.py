"""Context parallelism: every rank has some positions of each sequence, and attends to the keys and values of all of them.

Queries stay where they are; keys and values are gathered over the axis, and their gradients added up and sent back (Dubey et al. 2024,
section 3.3.2). Attention itself is torch's, with its own kernels and backward. Next to a ring (Liu et al. 2023), a rank holds the keys
and values of the whole sequence, but only of one layer at a time where blocks are checkpointed. torch's `context_parallel` needs a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from distributed.lines import Line
from parallelism.cut.sequence import HeadTail


class GatherOverRanks(torch.autograd.Function):
    """Everybody's tensor, by rank: (...) to (ranks, ...). Backward adds up what all ranks have found for each.

    Both ways go row-major, as NCCL demands.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, line: Line) -> Tensor:
        ctx.line = line
        gathered = own.new_empty((line.size, *own.shape))
        line.gather(gathered.view(-1), own.contiguous().view(-1))
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = gradient.new_empty(gradient.shape[1:])
        ctx.line.scatter_sum(own.view(-1), gradient.contiguous().view(-1))
        return own, None


def attend(query: Tensor, key: Tensor, value: Tensor, layout: HeadTail, line: Line) -> Tensor:
    """Causal attention over the whole sequence, for this rank's two chunks of it: all (2, batch, heads, chunk, head size), rotated already."""
    keys, values = in_order(torch.stack((key, value)), line)
    length = query.shape[-2]
    return torch.stack([causal(own, keys, values, (number + 1) * length) for own, number in zip(query, layout.chunks, strict=True)])


def in_order(own: Tensor, line: Line) -> tuple[Tensor, ...]:
    """Keys and values of this rank's chunks (2, 2, batch, heads, chunk, head size) to those of the sequence (batch, heads, time, head size)."""
    gathered: Tensor = GatherOverRanks.apply(own, line)  # type: ignore[no-untyped-call]
    heads, tails = gathered.unbind(2)
    chunks = torch.cat((heads, tails.flip(0)))  # (chunks, 2, batch, heads, chunk, head size)
    return chunks.movedim(0, 3).flatten(3, 4).unbind()


def causal(query: Tensor, keys: Tensor, values: Tensor, seen: int) -> Tensor:
    """Of the queries that stand last among the first `seen` positions."""
    keys, values = keys[..., :seen, :], values[..., :seen, :]
    length = query.shape[-2]
    if length == seen:
        return F.scaled_dot_product_attention(query, keys, values, is_causal=True)
    if query.is_cuda:  # the flash kernels have this mask built in
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=causal_lower_right(length, seen))
    mask = torch.ones(length, seen, dtype=torch.bool, device=query.device).tril(seen - length)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
