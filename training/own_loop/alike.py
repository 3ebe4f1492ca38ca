"""Every rank begins with rank 0's parameters and buffers, whatever random numbers it built its own from."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from paceline.distributed.process_group import Group
from paceline.training.errors import InvalidInputError

Signature = dict[str, tuple[tuple[int, ...], str]]


@torch.no_grad()
def broadcast_model(model: nn.Module, group: Group) -> None:
    """Copy rank 0's parameters and buffers to all ranks, in place, before the model is wrapped. Raises InvalidInputError on every rank
    if the models differ in names, shapes or dtypes."""
    tensors = dict(named_tensors(model))
    require_same([dict(each) for each in group.all_gather_object(signature(tensors))])
    passes = [each for each in spread(group.world_size) if group.rank in each]
    for tensor in tensors.values():
        content = tensor.detach().contiguous()  # a view of it, or a copy that must be put back
        for source, target in passes:
            if source == group.rank:
                group.send(content, target)
            else:
                group.receive(content, source)
                tensor.copy_(content)


def named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def signature(tensors: dict[str, Tensor]) -> Signature:
    return {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors.items()}


def require_same(signatures: list[Signature]) -> None:
    """Raise InvalidInputError unless all signatures, one of each rank, are equal."""
    first = signatures[0]
    for rank, other in enumerate(signatures):
        name = next((name for name in [*first, *other] if first.get(name) != other.get(name)), None)
        if name is not None:
            raise InvalidInputError(
                f"the model is not the same on every rank: {name} is {spelled(first.get(name))} on rank 0 and {spelled(other.get(name))} on "
                f"rank {rank}; build it from the same arguments everywhere"
            )


def spelled(found: tuple[tuple[int, ...], str] | None) -> str:
    return "missing" if found is None else f"{found[1].removeprefix('torch.')}{list(found[0])}"


def spread(ranks: int) -> Iterator[tuple[int, int]]:
    """Yield (source, target) from rank 0 to all ranks, twice as many in each round; a rank sends after it has received."""
    reached = 1
    while reached < ranks:
        yield from ((rank, rank + reached) for rank in range(min(reached, ranks - reached)))
        reached *= 2
