"""Residuals of compressed gradients where a job gives ranks up: one that stays takes over what those that leave have not sent."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from paceline.distributed.compression.compressible import RESIDUAL
from paceline.distributed.process_group import Group
from paceline.distributed.reduction import ReductionState


def inherited(group: Group, unsent: ReductionState, *, leaves: bool) -> dict[str, Tensor]:
    """Return what this rank takes over, by parameter, of what the ranks that leave have not sent: the first one that stays takes it all. Collective."""
    own = dict(unsent.get(RESIDUAL, {})) if leaves else {}
    told = group.all_gather_object((leaves, {name: part.numel() for name, part in own.items()}))
    elements = {name: count for _, of_rank in told for name, count in of_rank.items()}
    heir = next((rank for rank, (leaving, _) in enumerate(told) if not leaving), None)
    if heir is None or not elements:
        return {}
    flat = torch.cat([own.get(name, torch.zeros(count)) for name, count in elements.items()])
    group.sum(flat).wait()
    return dict(zip(elements, torch.split(flat, list(elements.values())), strict=True)) if group.rank == heir else {}


def with_inherited(unsent: ReductionState, taken_over: Mapping[str, Tensor]) -> ReductionState:
    """Return what a rank has not sent, its own and what it has taken over."""
    if not taken_over:
        return unsent
    own = unsent.get(RESIDUAL, {})
    return {**unsent, RESIDUAL: {**own, **{name: own[name] + part if name in own else part for name, part in taken_over.items()}}}
