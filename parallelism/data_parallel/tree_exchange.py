"""Sum tensors over the micro-batches of a step in the fixed tree, over one rank's and then over all replicas': the same bits on any
number.

Each rank sums the whole subtrees among its leaves and packs them into flat buffers, whose buckets are cut into as many slices as there are replicas. It
sends each peer that peer's slice of its sums, finishes the tree for its own slice, and sends the result to all. For powers of two this
moves as much as a reduce-scatter and an all-gather; with uneven shares a rank sends a few sums of subtrees instead of one, at most about
2 log2(s) times as much for s leaves. A single replica runs the same code without transfers.

The exchange starts after the last backward, or within it: a rank may give its last leaf tensor by tensor (`begin_last_leaf`), as backward computes them,
and a bucket is sent when its last tensor is there. Ranks need not agree on it, since the same messages are sent either way.

Memory, in sizes of all tensors, with V leaves: up to log2(V) + 1 pending sums on one rank, about 2 log2(s) + 1 for an uneven share of s
leaves, plus one packed copy per subtree and the peers' slices: 5 with V = 8 on one rank, 4.5 on two, under 3 on eight.
`gradient_copies.in_tree` counts it and the plan shows it.

Sums must never alias what is sent or what the optimizer reads: they may be kept when a step is interrupted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.futures import Future

from paceline.distributed.process_group import Group
from paceline.distributed.torch_private import add_to_each
from paceline.parallelism.data_parallel.flat_buffer import TAGS, ExchangeBucket, FlatBuffer
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.tree import TreeNode, TreeSum
from paceline.parallelism.wrapped import Sums


class TreeExchange:
    """Sums the tensors of all leaves of a step: on each replica the whole subtrees among its leaves, then the rest of the tree between
    replicas.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._assignment: MicroBatchAssignment | None = None
        self._flats: list[FlatBuffer] = []
        self._last_leaf: LastLeaf | None = None  # that is given tensor by tensor
        self._exchanges: list[Future[None]] = []  # of buckets that were sent early
        self._error: RuntimeError | None = None  # of a bucket that could not be sent early

    @property
    def leaves(self) -> int:
        """The number of leaves of the step's tree."""
        return self._sums.leaves

    @property
    def own_sums(self) -> list[list[Tensor]]:
        """The sums of this rank's subtrees. The exchange leaves them as they are."""
        return [value for _, value in self._sums.from_left_to_right]

    def begin_step(self, assignment: MicroBatchAssignment, like: Callable[[], Sequence[Tensor]], sums: Sums) -> None:
        """Begin a step. `assignment`: of leaves to replicas. `like`: makes one leaf's tensors, those of one data type side by side.

        `sums`: sums of subtrees that are there already.
        """
        if assignment != self._assignment:  # the first step, or the one after an interrupted step
            self._flats.clear()  # free the old ones before new ones are allocated
            self._flats = flat_buffers(like(), assignment, self._group)
        self._assignment = assignment
        self._sums = TreeSum(assignment.micro_batches, add_lists, sums)
        self._last_leaf, self._exchanges, self._error = None, [], None

    def put(self, leaf: int, tensors: list[Tensor]) -> None:
        """Add one leaf's tensors."""
        self._sums.put(TreeNode(0, leaf), tensors)

    def begin_last_leaf(self, leaf: int) -> None:
        """Begin with the last one of this rank's leaves: `put_tensor` gives its tensors one by one, and `end_last_leaf` all that are left."""
        self._last_leaf = LastLeaf(self._sums, leaf, self._flats)

    def put_tensor(self, member: int, tensor: Tensor) -> None:
        """Add one tensor of the last leaf, and send the bucket that it completes. Raises `TensorGivenTwiceError`."""
        assert self._last_leaf is not None
        completed = self._last_leaf.put(member, tensor)
        if completed is None or self._error is not None:
            return
        try:
            self._exchanges.append(completed.start())
        except RuntimeError as error:  # a peer has gone: backward goes on, so that the leaf is whole and can be kept
            self._error = error

    def end_last_leaf(self, tensors: Callable[[int], Tensor]) -> None:
        """Add the tensors of the last leaf that are missing. `tensors`: gives one by its index."""
        last = self._last_leaf
        assert last is not None
        for member in last.missing:
            self.put_tensor(member, tensors(member))
        last.end()

    def drop_last_leaf(self) -> None:
        """Forget a last leaf that backward has not finished, and the sums that it was being added to."""
        if self._last_leaf is not None:
            self._last_leaf.drop()

    def finish_step(self) -> list[Tensor]:
        """Return the sums over all leaves of all replicas; they are valid until the next step. Collective over the replicas."""
        if self._error is not None:
            raise self._error
        if self._last_leaf is None:
            self._exchange_all()
        self._group.end_exchanges(self._exchanges)
        self._last_leaf, self._exchanges = None, []
        return [view for flat in self._flats for view in flat.views]

    def _exchange_all(self) -> None:
        sums = self.own_sums
        for flat in self._flats:
            flat.pack_all(sums)
            for bucket in flat.buckets if flat.is_shared else ():
                if flat.views[0].is_cuda:
                    bucket.reduce()
                else:
                    self._exchanges.append(bucket.start())

    def release_memory(self) -> None:
        """Free all buffers and sums."""
        self._assignment, self._last_leaf, self._exchanges = None, None, []
        self._flats.clear()
        self._sums = TreeSum(0, add_lists)


class TensorGivenTwiceError(RuntimeError):
    """A tensor of a leaf was given again after it had been sent."""


class LastLeaf:
    """The last of a rank's leaves: each of its tensors is added to the sums that wait for it, and packed, as soon as it is there."""

    def __init__(self, sums: TreeSum[list[Tensor]], leaf: int, flats: Sequence[FlatBuffer]) -> None:
        self._sums, self._node = sums, TreeNode(0, leaf)
        self._siblings, completed = sums.path(self._node)
        others = [(node, value) for node, value in sums.from_left_to_right if node not in self._siblings]
        nodes = sorted([completed, *(node for node, _ in others)], key=lambda node: node.first)
        self._own = nodes.index(completed)  # among this rank's subtrees
        self._others = [(nodes.index(node), value) for node, value in others]
        self._flats = {member: flat for flat in flats for member in flat.members}
        self._buckets = {member: bucket for flat in flats for bucket in flat.buckets for member in bucket.members}
        self._left = {id(bucket): len(bucket.members) for bucket in self._buckets.values()}
        self._found: dict[int, Tensor] = {}

    @property
    def missing(self) -> list[int]:
        return [member for member in self._flats if member not in self._found]

    @torch.no_grad()
    def put(self, member: int, tensor: Tensor) -> ExchangeBucket | None:
        """Add a tensor; return its bucket, if that is complete now."""
        if member in self._found:
            raise TensorGivenTwiceError(f"tensor {member} of a micro-batch's gradients was given again after it had been summed and sent")
        for sibling in self._siblings:
            other = self._sums.pending[sibling][member]
            tensor = other.add_(tensor) if sibling.is_left else tensor.add_(other)
        self._found[member] = tensor
        flat, bucket = self._flats[member], self._buckets[member]
        flat.pack(self._own, member, tensor)
        self._left[id(bucket)] -= 1
        if self._left[id(bucket)]:
            return None
        for subtree, tensors in self._others:
            for each in bucket.members:
                flat.pack(subtree, each, tensors[each])
        return bucket

    def drop(self) -> None:
        """Take away the sums that some tensors were added to already."""
        for sibling in self._siblings:
            self._sums.pending.pop(sibling, None)

    def end(self) -> None:
        """Put the sum, of which all tensors are there now, in the place of those that it is the sum of."""
        self._sums.put_completed(self._node, [self._found[member] for member in sorted(self._found)])


@torch.no_grad()
def add_lists(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    """Add each tensor of `right` to the one of `left`, in place, and return `left`."""
    add_to_each(left, right)
    return left


def flat_buffers(tensors: Sequence[Tensor], assignment: MicroBatchAssignment, group: Group) -> list[FlatBuffer]:
    """Return one flat buffer for each run of tensors of one data type."""
    flats, first, first_tag = list[FlatBuffer](), 0, 0
    for _, run in itertools.groupby(tensors, key=lambda tensor: tensor.dtype):
        members = list(run)
        flats.append(FlatBuffer(members, first, first_tag, assignment, group))
        first, first_tag = first + len(members), first_tag + TAGS * len(flats[-1].buckets)
    return flats
