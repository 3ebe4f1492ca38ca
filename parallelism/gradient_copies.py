"""How many copies of the gradients a rank holds while it adds them up, by the way it does. Pure; see `reproducible.py`, `data_parallel.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parallelism.plan import Deal
from parallelism.tree import frontier, most_pending


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


def in_tree(deal: Deal) -> GradientCopies:
    """The fixed tree, on the rank that holds most: pending sums, its packed subtrees, and everyone's for its own slice."""
    subtrees = [len(frontier(share, deal.micro_batches)) for share in deal.shares]
    return max((_in_tree(deal, rank, subtrees) for rank in range(deal.ranks)), key=lambda copies: copies.most)


def _in_tree(deal: Deal, rank: int, subtrees: Sequence[int]) -> GradientCopies:
    """`subtrees`: how many each rank has."""
    pending = most_pending(deal.shares[rank], deal.micro_batches)
    received = (sum(subtrees) - subtrees[rank]) / deal.ranks
    return GradientCopies(before=max(0, pending - 1), after=pending, packed=max(1, subtrees[rank]) + received)
