"""How many copies of the gradients a rank holds while it adds them up, by the way it does. Pure; see `reproducible.py`, `data_parallel.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from parallelism.plan import Deal
from parallelism.tree import frontier, pending_before_each


@dataclass(frozen=True)
class GradientCopies:
    """In sizes of all gradients, for the micro-batch at which most are held."""

    before: float  # sums that wait while its forward pass runs
    after: float  # ... and once its backward is done; what is between appears layer by layer
    packed: float = 0.0  # buffers that stay for the whole run

    @property
    def most(self) -> float:
        return self.after + self.packed


def in_place(micro_batches: int) -> GradientCopies:
    """A single process: backward adds to what is there."""
    return GradientCopies(before=1.0 if micro_batches > 1 else 0.0, after=1.0)


def in_buckets(micro_batches: int) -> GradientCopies:
    """DistributedDataParallel with gradients as views of its buckets, which stay. What is added up before the last micro-batch is beside them: torch
    moves a gradient into its bucket when it is to be sent."""
    held = 2.0 if micro_batches > 1 else 1.0
    return GradientCopies(before=held, after=held)


class Turn(NamedTuple):
    """Of a micro-batch on its way back."""

    copies: GradientCopies
    to_come: int  # micro-batches of its rank after it


def in_tree(deal: Deal) -> GradientCopies:
    """The fixed tree, on the rank that holds most: pending sums, its packed subtrees, and everyone's for its own slice."""
    return max((turn.copies for turn in turns_in_tree(deal)), key=lambda copies: copies.most)


def turns_in_tree(deal: Deal) -> set[Turn]:
    """Of all ranks. Where few are to come, most sums are pending, and in a pipeline the fewest activations are held."""
    subtrees = [len(frontier(share, deal.micro_batches)) for share in deal.shares]
    packed = packed_copies(subtrees)
    found = {Turn(GradientCopies(before=0, after=0, packed=copies), 0) for copies in set(packed)}
    for rank, share in enumerate(deal.shares):
        for number, pending in enumerate(pending_before_each(share, deal.micro_batches)):
            copies = GradientCopies(before=pending, after=pending + 1, packed=packed[rank])
            found.add(Turn(copies, len(share) - 1 - number))
    return found


def packed_copies(subtrees: Sequence[int]) -> list[float]:
    """By rank. `subtrees`: how many each has. The first one's buffer ends up with the result, also where there are none."""
    total, ranks = sum(subtrees), len(subtrees)
    return [max(1, own) + (total - own) / ranks for own in subtrees]
