"""Context parallelism: every rank has some positions of each sequence, and attends to the keys and values of all positions.

Queries stay on their rank. Keys and values are all-gathered over the context axis, and their gradients are reduce-scattered (Dubey et al.
2024, section 3.3.2). Attention itself is torch's, with its own kernels and backward. Compared with ring attention (Liu et al. 2023), a
rank holds the keys and values of the whole sequence, but of only one layer at a time where blocks are checkpointed. torch's own
`context_parallel` needs a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from paceline.distributed.axis_groups import AxisGroup
from paceline.parallelism.tensor_context.sequence import HeadTail


class AllGather(torch.autograd.Function):
    """All-gather a tensor over an axis group, by rank: (...) to (ranks, ...). Backward reduce-scatters the gradients.

    Both directions are row-major, as NCCL demands.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, axis_group: AxisGroup) -> Tensor:
        ctx.axis_group = axis_group
        gathered = own.new_empty((axis_group.size, *own.shape))
        axis_group.all_gather(gathered.view(-1), own.contiguous().view(-1))
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = gradient.new_empty(gradient.shape[1:])
        ctx.axis_group.reduce_scatter(own.view(-1), gradient.contiguous().view(-1))
        return own, None


def context_attention(query: Tensor, key: Tensor, value: Tensor, layout: HeadTail, axis_group: AxisGroup) -> Tensor:
    """Return the causal attention of this rank's two chunks of queries to the whole sequence.

    `query`, `key`, `value` and the result: (2, batch, heads, chunk, head size), with rotary embeddings applied. Collective over the
    context axis.
    """
    keys, values = gather_keys_values(torch.stack((key, value)), axis_group)
    length = query.shape[-2]
    return torch.stack(
        [causal_attention(own, keys, values, (number + 1) * length) for own, number in zip(query, layout.chunks, strict=True)]
    )


def gather_keys_values(own: Tensor, axis_group: AxisGroup) -> tuple[Tensor, ...]:
    """All-gather this rank's chunks of keys and values and put them in the order of the sequence.

    (2, 2, batch, heads, chunk, head size) to keys and values (batch, heads, time, head size).
    """
    gathered: Tensor = AllGather.apply(own, axis_group)  # type: ignore[no-untyped-call]
    heads, tails = gathered.unbind(2)
    chunks = torch.cat((heads, tails.flip(0)))  # (chunks, 2, batch, heads, chunk, head size)
    return chunks.movedim(0, 3).flatten(3, 4).unbind()


def causal_attention(query: Tensor, keys: Tensor, values: Tensor, seen: int) -> Tensor:
    """Return the attention of queries at the last of the first `seen` positions to those `seen` positions."""
    keys, values = keys[..., :seen, :], values[..., :seen, :]
    length = query.shape[-2]
    if length == seen:
        return F.scaled_dot_product_attention(query, keys, values, is_causal=True)
    if query.is_cuda:  # the flash kernels have this mask built in
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=causal_lower_right(length, seen))
    mask = torch.ones(length, seen, dtype=torch.bool, device=query.device).tril(seen - length)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
