"""The sizes of the mesh's axes, a rank's coordinates, and the assignment of micro-batches to ranks. Pure and torch-free.

The coordinator plans with the same code that the ranks build with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

Axis = Literal["pipeline", "replicate", "shard", "context", "tensor"]
#: From the axis along which ranks are furthest apart to the one whose ranks are neighbours, most often on one machine: stages of a
#: pipeline communicate least with each other, and tensor shards the most.
AXES: tuple[Axis, ...] = ("pipeline", "replicate", "shard", "context", "tensor")
#: The axes along which each rank holds a different shard of the state; along the others all ranks hold the same.
STATE_SHARDING_AXES: frozenset[Axis] = frozenset({"pipeline", "shard", "tensor"})
#: The least parameters that sharding gathers at a time: fewer cost more in messages than they save in memory.
LEAST_IN_UNIT = 4_000_000

#: The shard of the state that a rank holds: (axis, coordinate, size) for each axis that shards it; empty: all of the state, or of that of a
#: worker beside servers. A server holds the optimizer's state of its shard too: ("server", its number, how many there are).
StateShard = tuple[tuple[Axis | Literal["server"], int, int], ...]


class WorldSizeMismatchError(ValueError):
    """A strategy does not fit the number of ranks."""


@dataclass(frozen=True)
class Degrees:
    """The size of each mesh axis; their product is the world size. See `parallelism.mesh` for the axes' names in torch."""

    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    servers: int = 0  # parameter servers, before the data ranks, which are their workers

    @property
    def world_size(self) -> int:
        return self.servers + self.data * self.ranks_per_micro_batch

    @property
    def data(self) -> int:
        """The number of data ranks, to which a step's micro-batches are assigned."""
        return self.replicate * self.shard

    def assignment(self, micro_batches: int, data_rank: int = 0) -> MicroBatchAssignment:
        """Return the assignment of a step's micro-batches to data ranks, seen from `data_rank`.

        In one pass the `shard` ranks of a replica compute neighbouring micro-batches; passes are assigned to replicas as evenly as
        possible. So what is summed within a pass does not depend on the number of replicas. Without a shard axis a pass is one
        micro-batch. Beside servers `data_rank` is the rank in the world, and servers get nothing.
        """
        if self.servers:
            return assign_to_workers(assign_evenly(micro_batches, self.replicate), self.servers, data_rank)
        by_replica = assign_evenly(-(-micro_batches // self.shard), self.replicate).shares
        firsts = ((share, place) for share in by_replica for place in range(self.shard))
        shares = (tuple(index for number in share if (index := number * self.shard + place) < micro_batches) for share, place in firsts)
        return MicroBatchAssignment(tuple(shares), data_rank)

    def max_per_data_rank(self, micro_batches: int) -> int:
        """Return the number of micro-batches of the busiest data rank: `assignment(micro_batches).max_per_rank`, without making the
        assignment.
        """
        return -(-micro_batches // (self.shard * self.replicate))

    @property
    def ranks_per_micro_batch(self) -> int:
        """The number of ranks that compute one micro-batch together."""
        return self.tensor * self.pipeline * self.context

    @property
    def sizes(self) -> dict[Axis, int]:
        """The sizes of the axes with more than one rank, in the order of `AXES`."""
        return {axis: self.along(axis) for axis in AXES if self.along(axis) > 1}

    def along(self, axis: Axis) -> int:
        """Return the size of `axis`."""
        size: int = getattr(self, axis)
        return size


@dataclass(frozen=True)
class Coordinates:
    """The coordinates of a rank in the mesh. Ranks are numbered along the last of `AXES` first."""

    degrees: Degrees = Degrees()
    rank: int = 0

    def along(self, axis: Axis) -> int:
        """Return the coordinate along `axis`, from 0. Servers have none; for them it is 0."""
        if self.degrees.servers:
            return max(0, self.rank - self.degrees.servers) if axis == "replicate" else 0
        inner = AXES[AXES.index(axis) + 1 :]
        return self.rank // math.prod(map(self.degrees.along, inner)) % self.degrees.along(axis)

    @property
    def by_axis(self) -> dict[Axis, int]:
        """The coordinate along each axis of more than one rank; empty for a server."""
        return {} if self.is_server else {axis: self.along(axis) for axis in self.degrees.sizes}

    @property
    def is_server(self) -> bool:
        """Whether this rank is a parameter server: those are the first ranks, so that workers can come and go behind them."""
        return self.rank < self.degrees.servers

    @property
    def data_rank(self) -> int:
        """The number of this data rank, equal on all ranks that compute the same micro-batches. Beside servers it is the rank."""
        if self.degrees.servers:
            return self.rank
        return self.along("replicate") * self.degrees.shard + self.along("shard")

    @property
    def is_loss_reporter(self) -> bool:
        """Whether this rank reports the loss, which must be counted once for each tensor axis group, whose ranks all find it.

        Along the context axis each rank has a part of the loss. In a pipeline only ranks of the last stage have one.
        """
        return self.along("tensor") == 0

    def assignment(self, micro_batches: int) -> MicroBatchAssignment:
        """Return the assignment of a step's micro-batches, seen from this rank."""
        return self.degrees.assignment(micro_batches, self.data_rank)

    def evaluation_assignment(self, batches: int) -> MicroBatchAssignment:
        """Return the assignment of evaluation batches, seen from this rank. Whole sequences are evaluated, so context ranks get batches
        of their own. Servers evaluate too: they have the parameters, and nothing else to do.
        """
        ranks = self.degrees.servers + self.degrees.data * self.degrees.context
        return assign_evenly(batches, ranks, self.data_rank * self.degrees.context + self.along("context"))

    @property
    def state_shard(self) -> StateShard:
        """The shard of the state that this rank holds. It is equal for ranks that are replicas of each other."""
        if self.is_server:
            return (("server", self.rank, self.degrees.servers),)
        return tuple(
            (axis, coordinate, self.degrees.along(axis)) for axis, coordinate in self.by_axis.items() if axis in STATE_SHARDING_AXES
        )


def state_shards(degrees: Degrees) -> tuple[StateShard, ...]:
    """Return the shard of the state that each rank holds, by rank."""
    return tuple(Coordinates(degrees, rank).state_shard for rank in range(degrees.world_size))


def degrees(
    strategy: Literal["single", "ddp", "fsdp", "parameter_server", "auto"],
    world_size: int,
    *,
    replicate: int | None = None,
    shard: int | None = None,
    tensor: int = 1,
    pipeline: int = 1,
    context: int = 1,
    servers: int = 1,
) -> Degrees:
    """Return the sizes of all axes for a strategy and a world size. Raises `WorldSizeMismatchError` if the world is not their product, and
    for the strategy `auto`, which is not a plan yet.

    `single` is a world of one. Otherwise `tensor`, `pipeline` and `context` say how many ranks compute one micro-batch, and the rest of
    the world are data ranks: for `ddp` each is a replica; `fsdp` has `replicate` replicas (default: one) of `shard` shards each. Of those
    two, the one that is not given follows from the world. `parameter_server`: `servers` ranks serve, the others are replicas that compute.
    """
    if strategy == "auto":
        raise WorldSizeMismatchError(
            "strategy auto is open until the coordinator has chosen: submit the job to one, or use single, ddp or fsdp"
        )
    if strategy == "single" and world_size != 1:
        raise WorldSizeMismatchError(f"strategy single is one process, but the world has {world_size} ranks; use ddp")
    if strategy == "parameter_server":
        return with_servers(world_size, servers)
    sharded = Degrees(tensor=tensor, pipeline=pipeline, context=context)
    data = data_ranks(world_size, sharded)
    if strategy != "fsdp":
        return replace(sharded, replicate=data)
    copies = replicate or (max(1, data // shard) if shard else 1)
    found = replace(sharded, replicate=copies, shard=shard or max(1, data // copies))
    if found.world_size != world_size:
        beside = f" / {in_words(sharded)} = {data} data ranks" if sharded.ranks_per_micro_batch > 1 else ""
        raise WorldSizeMismatchError(
            f"replicate={replicate or 'any'} x shard={shard or 'any'} does not divide world size {world_size}{beside}; use a divisor of "
            f"{data} for one of them, and leave the other out"
        )
    return found


def with_servers(world_size: int, servers: int) -> Degrees:
    """Return the sizes of a world with parameter servers. Raises `WorldSizeMismatchError` if no rank is left to compute."""
    if world_size <= servers:
        raise WorldSizeMismatchError(
            f"strategy parameter_server with servers={servers} needs a worker beside {'it' if servers == 1 else 'them'}, but the world has "
            f"{world_size} rank{'' if world_size == 1 else 's'}; use {servers + 1} ranks or more{', or fewer servers' if servers > 1 else ', or single'}"
        )
    return Degrees(replicate=world_size - servers, servers=servers)


def data_ranks(world_size: int, sharded: Degrees) -> int:
    """Return the number of data ranks beside the axes of `sharded`. Raises `WorldSizeMismatchError` if those do not divide the world."""
    if world_size % sharded.ranks_per_micro_batch:
        sizes = " or ".join(map(str, nearest(world_size, sharded.ranks_per_micro_batch)))
        raise WorldSizeMismatchError(
            f"{in_words(sharded)} does not divide world size {world_size}; use {sizes} ranks, or degrees whose product divides {world_size}"
        )
    return world_size // sharded.ranks_per_micro_batch


def nearest(number: int, divisor: int) -> list[int]:
    """Return the multiples of `divisor` around a number that is none."""
    below = number // divisor * divisor
    return [multiple for multiple in (below, below + divisor) if multiple]


def in_words(degrees: Degrees) -> str:
    """Return the sizes as text, such as "context=2 x tensor=4"."""
    return " x ".join(f"{axis}={size}" for axis, size in degrees.sizes.items())


def partition(total: int, replica: int, replicas: int) -> range:
    """Return the range of items of one replica, of contiguous ranges whose sizes differ by at most one, the larger ones first."""
    base, extra = divmod(total, replicas)
    first = replica * base + min(replica, extra)
    return range(first, first + base + (replica < extra))


@dataclass(frozen=True)
class MicroBatchAssignment:
    """The assignment of a step's micro-batches to data ranks, each to exactly one, seen from one of them."""

    shares: tuple[tuple[int, ...], ...]  # by data rank; each ascending
    rank: int = 0

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of the step."""
        return sum(map(len, self.shares))

    @property
    def ranks(self) -> int:
        return len(self.shares)

    @property
    def own(self) -> tuple[int, ...]:
        """The micro-batches of this rank."""
        return self.shares[self.rank]

    def pass_assignment(self, shard: int) -> MicroBatchAssignment:
        """Return the assignment of passes to replicas of `shard` data ranks each; see `Degrees.assignment`."""
        return assign_evenly(-(-self.micro_batches // shard), self.ranks // shard, self.rank // shard)

    @property
    def max_per_rank(self) -> int:
        """The number of micro-batches of the busiest rank, which the others wait for."""
        return max(map(len, self.shares))


def assign_evenly(micro_batches: int, ranks: int, rank: int = 0) -> MicroBatchAssignment:
    """Return contiguous shares whose sizes differ by at most one, the larger ones first."""
    return MicroBatchAssignment(tuple(tuple(partition(micro_batches, each, ranks)) for each in range(ranks)), rank)


def assign_to_workers(assignment: MicroBatchAssignment, servers: int, rank: int) -> MicroBatchAssignment:
    """Return an assignment to workers as one to all ranks, seen from `rank`: the first `servers` ranks are servers, and get nothing."""
    return MicroBatchAssignment((*((),) * servers, *assignment.shares), rank)


def assign_remaining(micro_batches: int, kept: Sequence[Collection[int]], rank: int = 0) -> MicroBatchAssignment:
    """Return the assignment in which every rank keeps the micro-batches that it has computed, and the missing ones are assigned evenly.

    `kept`: by rank, what it has computed; disjoint. Missing ones are assigned in contiguous runs, the larger ones to the ranks that keep
    least. If no rank keeps anything this is `assign_evenly`.
    """
    missing = sorted(set(range(micro_batches)).difference(*kept))
    base, extra = divmod(len(missing), len(kept))
    neediest = sorted(range(len(kept)), key=lambda each: len(kept[each]))[:extra]
    rest = iter(missing)
    counts = (base + (each in neediest) for each in range(len(kept)))
    return MicroBatchAssignment(tuple(tuple(sorted([*own, *islice(rest, count)])) for own, count in zip(kept, counts, strict=True)), rank)
