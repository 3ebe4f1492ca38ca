"""Residuals of compressed gradients where a job gives ranks up: one that stays takes over what those that leave have not sent."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from paceline.distributed.compression.compressible import RESIDUAL
from paceline.distributed.process_group import Group
from paceline.distributed.reduction import ReductionState


def inherited(group: Group, unsent: ReductionState, *, leaves: bool) -> dict[str, Tensor]:
    """Return what this rank takes over, by parameter, of what its replicas that leave have not sent: the first one that stays takes it all. Collective.

    Replicas of a shard are the ranks with the same shard. Where all of them leave, the checkpoint is read, which has what they have not sent too.
    """
    own = dict(unsent.get(RESIDUAL, {})) if leaves else {}
    told = group.all_gather_object((leaves, {name: part.numel() for name, part in own.items()}))
    replicas = group.axis_groups.get("replicate")
    if replicas is None or all(leaving for leaving, _ in told) or not any(of_rank for _, of_rank in told):
        return {}
    elements = {name: count for rank in replicas.ranks for name, count in told[rank][1].items()}
    heir = next((rank for rank in replicas.ranks if not told[rank][0]), None)
    parts = [own.get(name, torch.zeros(count)) for name, count in elements.items()]
    flat = replicas.sum(torch.cat(parts) if parts else torch.zeros(1))  # ranks of other shards may have some: all make the same calls
    if group.rank != heir or not parts:
        return {}
    return dict(zip(elements, torch.split(flat, list(elements.values())), strict=True))


def with_inherited(unsent: ReductionState, taken_over: Mapping[str, Tensor]) -> ReductionState:
    """Return what a rank has not sent, its own and what it has taken over."""
    if not taken_over:
        return unsent
    own = unsent.get(RESIDUAL, {})
    return {**unsent, RESIDUAL: {**own, **{name: own[name] + part if name in own else part for name, part in taken_over.items()}}}
