"""Which axes a world is cut into. Pure and torch-free: the coordinator plans with the same code the ranks build with."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

Axis = Literal["pipeline", "replicate", "shard", "context", "tensor"]
#: From the axis along which ranks are furthest apart to the one whose ranks are neighbours, most often on one machine: stages of a
#: pipeline say least to each other, and tensor parts the most.
AXES: tuple[Axis, ...] = ("pipeline", "replicate", "shard", "context", "tensor")
#: Those along which each rank holds another part of the state; along the others all hold the same.
CUTS: frozenset[Axis] = frozenset({"pipeline", "shard", "tensor"})
#: Parameters that sharding gathers at a time, at least: fewer cost more in messages than they save in memory.
LEAST_IN_UNIT = 4_000_000

#: Which part of the state a rank holds: (axis, place along it, ranks along it) for each axis that cuts it; empty: all of it.
Part = tuple[tuple[Axis, int, int], ...]


class WorldSizeMismatchError(ValueError):
    """A strategy that does not fit the number of ranks."""


@dataclass(frozen=True)
class Degrees:
    """Size of each mesh axis; their product is the world size."""

    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1

    @property
    def world_size(self) -> int:
        return self.data * self.cut

    @property
    def data(self) -> int:
        """Data ranks: among them a step's micro-batches are dealt out."""
        return self.replicate * self.shard

    def deal(self, micro_batches: int, data_rank: int = 0) -> Deal:
        """Passes, in which the `shard` ranks of a replica compute neighbouring micro-batches, as evenly as they go: so what is added up within a
        pass does not depend on the number of replicas. Without shards a pass is a micro-batch, and this the even deal."""
        by_replica = even_deal(-(-micro_batches // self.shard), self.replicate).shares
        firsts = ((share, place) for share in by_replica for place in range(self.shard))
        shares = (tuple(index for number in share if (index := number * self.shard + place) < micro_batches) for share, place in firsts)
        return Deal(tuple(shares), data_rank)

    def largest_share(self, micro_batches: int) -> int:
        """Micro-batches of the busiest data rank, which the others wait for: `deal(micro_batches).largest`, without dealing them out."""
        return -(-micro_batches // (self.shard * self.replicate))

    @property
    def cut(self) -> int:
        """Ranks that one micro-batch takes."""
        return self.tensor * self.pipeline * self.context

    @property
    def sizes(self) -> dict[Axis, int]:
        """Of the axes along which there is more than one rank, in the order of `AXES`."""
        return {axis: self.along(axis) for axis in AXES if self.along(axis) > 1}

    def along(self, axis: Axis) -> int:
        size: int = getattr(self, axis)
        return size


@dataclass(frozen=True)
class Coordinates:
    """Where a rank stands in the mesh, whose ranks are numbered along the last of `AXES` first."""

    degrees: Degrees = Degrees()
    rank: int = 0

    def along(self, axis: Axis) -> int:
        """From 0."""
        inner = AXES[AXES.index(axis) + 1 :]
        return self.rank // math.prod(map(self.degrees.along, inner)) % self.degrees.along(axis)

    @property
    def places(self) -> dict[Axis, int]:
        """Along each axis of more than one rank."""
        return {axis: self.along(axis) for axis in self.degrees.sizes}

    @property
    def data_rank(self) -> int:
        """The same on all ranks that compute the same micro-batches."""
        return self.along("replicate") * self.degrees.shard + self.along("shard")

    @property
    def speaks(self) -> bool:
        """One rank of those along the tensor axis, who find the same loss: added up over ranks it must count once. Along the context axis
        each has a part of it. Of a pipeline only ranks that have a loss at all have anything to say."""
        return self.along("tensor") == 0

    def deal(self, micro_batches: int) -> Deal:
        return self.degrees.deal(micro_batches, self.data_rank)

    def evaluation_deal(self, batches: int) -> Deal:
        """Whole sequences are evaluated: context ranks need each other no more than data ranks do."""
        ranks = self.degrees.data * self.degrees.context
        return even_deal(batches, ranks, self.data_rank * self.degrees.context + self.along("context"))

    @property
    def part(self) -> Part:
        """Of the state. The same for ranks that are replicas of each other."""
        return tuple((axis, place, self.degrees.along(axis)) for axis, place in self.places.items() if axis in CUTS)


def parts_of(degrees: Degrees) -> tuple[Part, ...]:
    """By rank."""
    return tuple(Coordinates(degrees, rank).part for rank in range(degrees.world_size))


@dataclass(frozen=True)
class Choices:
    """How a model is made ready for its world, beyond the sizes of the axes."""

    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    reshard_after_forward: bool = True  # False: whole parameters stay from forward to backward (ZeRO-2)
    cpu_offload: bool = False
    least_in_unit: int = LEAST_IN_UNIT


def degrees(
    strategy: Literal["single", "ddp", "fsdp", "auto"],
    world_size: int,
    *,
    replicate: int | None = None,
    shard: int | None = None,
    tensor: int = 1,
    pipeline: int = 1,
    context: int = 1,
) -> Degrees:
    """`single` is a world of one. Otherwise `tensor`, `pipeline` and `context` say how many ranks one micro-batch takes, and what the world has
    beyond that are data ranks: of `ddp` each is a replica, `fsdp` cuts each of `replicate` replicas (default: one) into `shard` parts. What
    is not given of those two follows from the world."""
    if strategy == "auto":
        raise WorldSizeMismatchError(
            "strategy auto is open until the coordinator has chosen: submit the job to one, or use single, ddp or fsdp"
        )
    if strategy == "single" and world_size != 1:
        raise WorldSizeMismatchError(f"strategy single is one process, but the world has {world_size} ranks; use ddp")
    cut = Degrees(tensor=tensor, pipeline=pipeline, context=context)
    data = data_ranks(world_size, cut)
    if strategy != "fsdp":
        return replace(cut, replicate=data)
    copies = replicate or (max(1, data // shard) if shard else 1)
    found = replace(cut, replicate=copies, shard=shard or max(1, data // copies))
    if found.world_size != world_size:
        beside = f" / {spoken(cut)} = {data} data ranks" if cut.cut > 1 else ""
        raise WorldSizeMismatchError(
            f"replicate={replicate or 'any'} x shard={shard or 'any'} does not divide world size {world_size}{beside}; use a divisor of "
            f"{data} for one of them, and leave the other out"
        )
    return found


def data_ranks(world_size: int, cut: Degrees) -> int:
    if world_size % cut.cut:
        raise WorldSizeMismatchError(
            f"{spoken(cut)} does not divide world size {world_size}; use {' or '.join(map(str, nearest(world_size, cut.cut)))} ranks, or "
            f"degrees whose product divides {world_size}"
        )
    return world_size // cut.cut


def nearest(number: int, divisor: int) -> list[int]:
    """Multiples of `divisor` around a number that is none."""
    below = number // divisor * divisor
    return [multiple for multiple in (below, below + divisor) if multiple]


def spoken(degrees: Degrees) -> str:
    """As in "context=2 x tensor=4"."""
    return " x ".join(f"{axis}={size}" for axis, size in degrees.sizes.items())


def share(total: int, replica: int, replicas: int) -> range:
    """Cut `total` items into contiguous ranges whose sizes differ by one at most, the larger ones first."""
    base, extra = divmod(total, replicas)
    first = replica * base + min(replica, extra)
    return range(first, first + base + (replica < extra))


@dataclass(frozen=True)
class Deal:
    """How a step's micro-batches are dealt out to the data ranks, seen from one of them: each to exactly one."""

    shares: tuple[tuple[int, ...], ...]  # by data rank; each ascending
    rank: int = 0

    @property
    def micro_batches(self) -> int:
        return sum(map(len, self.shares))

    @property
    def ranks(self) -> int:
        return len(self.shares)

    @property
    def own(self) -> tuple[int, ...]:
        return self.shares[self.rank]

    def of_passes(self, shard: int) -> Deal:
        """To the replicas, of which `shard` data ranks each are one: see `Degrees.deal`."""
        return even_deal(-(-self.micro_batches // shard), self.ranks // shard, self.rank // shard)

    @property
    def largest(self) -> int:
        """Micro-batches of the busiest rank, which the others wait for."""
        return max(map(len, self.shares))


def even_deal(micro_batches: int, ranks: int, rank: int = 0) -> Deal:
    """Contiguous shares whose sizes differ by one at most, the larger ones first."""
    return Deal(tuple(tuple(share(micro_batches, each, ranks)) for each in range(ranks)), rank)


def deal_around(micro_batches: int, kept: Sequence[Collection[int]], rank: int = 0) -> Deal:
    """Every rank keeps what it has computed already (disjoint, by rank); what is missing is shared out evenly, in contiguous runs, the
    larger ones to those that keep least. Where nobody keeps anything this is the even deal."""
    missing = sorted(set(range(micro_batches)).difference(*kept))
    base, extra = divmod(len(missing), len(kept))
    neediest = sorted(range(len(kept)), key=lambda each: len(kept[each]))[:extra]
    rest = iter(missing)
    counts = (base + (each in neediest) for each in range(len(kept)))
    return Deal(tuple(tuple(sorted([*own, *islice(rest, count)])) for own, count in zip(kept, counts, strict=True)), rank)
