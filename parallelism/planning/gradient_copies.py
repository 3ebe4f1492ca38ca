"""How many copies of the gradients a rank holds while it sums them, by the way it does. Pure; see `data_parallel/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.tree import frontier, pending_before_each


@dataclass(frozen=True)
class GradientCopies:
    """Copies in units of the size of all gradients, at the micro-batch at which most are held."""

    before: float  # pending sums during the micro-batch's forward pass
    after: float  # ... and once its backward is done; the difference appears layer by layer
    packed: float = 0.0  # buffers that are kept for the whole run

    @property
    def most(self) -> float:
        """The copies at the end of backward, with the buffers."""
        return self.after + self.packed


def in_place(micro_batches: int) -> GradientCopies:
    """Return the copies of a single process, whose backward adds to the existing gradients."""
    return GradientCopies(before=1.0 if micro_batches > 1 else 0.0, after=1.0)


def in_buckets(micro_batches: int) -> GradientCopies:
    """Return the copies of DistributedDataParallel with gradients as views of its buckets, which are kept.

    Sums of earlier micro-batches are held beside the buckets: torch moves a gradient into its bucket when it is sent.
    """
    held = 2.0 if micro_batches > 1 else 1.0
    return GradientCopies(before=held, after=held)


def with_unsent(copies: GradientCopies) -> GradientCopies:
    """Return the copies with those of error feedback: what is not sent up to the last step, and up to the one under way, which may still break off."""
    return replace(copies, packed=copies.packed + 2.0)


def pushed_in_tree(assignment: MicroBatchAssignment) -> GradientCopies:
    """Return the copies of a worker beside parameter servers that holds most: pending sums during backward. It packs what it pushes after
    that, when activations are gone: `pushed_copies`."""
    positions = backward_positions_in_tree(assignment)
    return max((GradientCopies(each.copies.before, each.copies.after) for each in positions), key=lambda copies: copies.most)


def pushed_copies(assignment: MicroBatchAssignment) -> list[int]:
    """Return for each worker the subtrees that it pushes, each of the size of all gradients."""
    return [len(frontier(share, assignment.micro_batches)) for share in assignment.shares]


class BackwardPosition(NamedTuple):
    """Gradient memory during one micro-batch's backward, and how many micro-batches the rank still has to compute."""

    copies: GradientCopies
    to_come: int  # micro-batches that the rank computes after this one


def in_tree(assignment: MicroBatchAssignment) -> GradientCopies:
    """Return the copies of the fixed tree on the rank that holds most: pending sums, packed subtrees, and all ranks' sums for its own
    slice.
    """
    return max((position.copies for position in backward_positions_in_tree(assignment)), key=lambda copies: copies.most)


def backward_positions_in_tree(assignment: MicroBatchAssignment) -> set[BackwardPosition]:
    """Return the backward positions of all ranks, without duplicates.

    When few micro-batches are to come, most sums are pending, and in a pipeline the fewest activations are held.
    """
    subtrees = [len(frontier(share, assignment.micro_batches)) for share in assignment.shares]
    packed = packed_copies(subtrees)
    found = {BackwardPosition(GradientCopies(before=0, after=0, packed=copies), 0) for copies in set(packed)}
    for rank, share in enumerate(assignment.shares):
        for number, pending in enumerate(pending_before_each(share, assignment.micro_batches)):
            copies = GradientCopies(before=pending, after=pending + 1, packed=packed[rank])
            found.add(BackwardPosition(copies, len(share) - 1 - number))
    return found


def packed_copies(subtrees: Sequence[int]) -> list[float]:
    """Return for each rank the copies in exchange buffers. `subtrees`: how many each rank has.

    The first subtree's buffer receives the result, so a rank without subtrees has one buffer too.
    """
    total, ranks = sum(subtrees), len(subtrees)
    return [max(1, own) + (total - own) / ranks for own in subtrees]
