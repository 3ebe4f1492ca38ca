"""Which axes a world is cut into. Pure and torch-free: the coordinator plans with the same code the ranks build with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

#: Parameters that sharding gathers at a time, at least: fewer cost more in messages than they save in memory.
LEAST_IN_UNIT = 4_000_000


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
        return self.replicate * self.shard * self.tensor * self.pipeline * self.context


@dataclass(frozen=True)
class Choices:
    """How a model is made ready for its world, beyond the sizes of the axes."""

    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    reshard_after_forward: bool = True  # False: whole parameters stay from forward to backward (ZeRO-2)
    cpu_offload: bool = False
    least_in_unit: int = LEAST_IN_UNIT


def degrees(
    strategy: Literal["single", "ddp", "fsdp", "auto"], world_size: int, *, replicate: int | None = None, shard: int | None = None
) -> Degrees:
    """`single` is a world of one; every rank of `ddp` is a replica; `fsdp` cuts each of `replicate` replicas (default: one) into `shard`
    parts. What is not given follows from the world."""
    if strategy == "auto":
        raise WorldSizeMismatchError("strategy auto is not available yet; use single, ddp or fsdp")
    if strategy == "single" and world_size != 1:
        raise WorldSizeMismatchError(f"strategy single is one process, but the world has {world_size} ranks; use ddp")
    if strategy != "fsdp":
        return Degrees(replicate=world_size)
    copies = replicate or (max(1, world_size // shard) if shard else 1)
    found = Degrees(replicate=copies, shard=shard or max(1, world_size // copies))
    if found.world_size != world_size:
        raise WorldSizeMismatchError(
            f"replicate={replicate or 'any'} x shard={shard or 'any'} does not divide world size {world_size}; use a divisor of "
            f"{world_size} for one of them, and leave the other out"
        )
    return found


def share(total: int, replica: int, replicas: int) -> range:
    """Cut `total` items into contiguous ranges whose sizes differ by one at most, the larger ones first."""
    base, extra = divmod(total, replicas)
    first = replica * base + min(replica, extra)
    return range(first, first + base + (replica < extra))


@dataclass(frozen=True)
class Deal:
    """How a step's micro-batches are dealt out to the ranks, seen from one of them: each to exactly one."""

    shares: tuple[tuple[int, ...], ...]  # by rank; each ascending
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
