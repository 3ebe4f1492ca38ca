"""Checks that two process groups are a hierarchy, before gradients are summed over them: gloo ends the process over parts of unequal length, and adds parts of
different places without a word."""

from __future__ import annotations

import torch

from paceline.distributed.axis_groups import AxisGroup
from paceline.training.errors import InvalidInputError


def require_hierarchy(local: AxisGroup, across: AxisGroup, length: int, device: torch.device) -> None:
    """Raise InvalidInputError unless all machines have equally many ranks, `across` has one of each machine, all at the same place there, and all gradients
    have `length` elements. Collective; every rank of a machine raises where one of them does.
    """
    asked = _gather(across, [local.rank, local.size, length], device)
    is_alike = len({tuple(each) for each in asked}) == 1
    others = _gather(local, [int(is_alike), across.rank, across.size], device)
    if is_alike and len({tuple(each) for each in others}) == 1:
        return
    peers = ", ".join(
        f"rank {rank} has place {place} of {size} on its machine and {elements} elements"
        for rank, (place, size, elements) in zip(across.ranks, asked, strict=True)
    )
    raise InvalidInputError(
        f"intra_node_group={list(local.ranks)} and inter_node_group={list(across.ranks)} are no hierarchy for a gradient of {length} elements: {peers}. Give equally "
        "many ranks on every machine, such as [0, 1] and [2, 3], between machines the ranks with the same place, [0, 2] and [1, 3], and gradients of one "
        "length; or use all_reduce_compressed, which takes ranks as they lie"
    )


def _gather(group: AxisGroup, values: list[int], device: torch.device) -> list[list[int]]:
    """Return the values of every rank of a group, in the order of its ranks."""
    if group.size == 1:
        return [values]
    own = torch.tensor(values, device=device)
    found = own.new_empty(group.size * len(values))
    group.all_gather(found, own)
    return [[int(value) for value in each] for each in found.view(group.size, -1).tolist()]
