"""Which axes a world is cut into. Pure and torch-free: the coordinator plans with the same code the ranks build with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class WorldSizeMismatchError(ValueError):
    """A strategy that does not fit the number of ranks."""


@dataclass(frozen=True)
class Degrees:
    """Size of each mesh axis; their product is the world size."""

    replicate: int

    @property
    def world_size(self) -> int:
        return self.replicate


def degrees(strategy: Literal["single", "ddp", "fsdp", "auto"], world_size: int) -> Degrees:
    """Every rank of `ddp` is a replica; `single` is a world of one."""
    if strategy not in ("single", "ddp"):
        raise WorldSizeMismatchError(f"strategy {strategy} is not available yet; use single or ddp")
    if strategy == "single" and world_size != 1:
        raise WorldSizeMismatchError(f"strategy single is one process, but the world has {world_size} ranks; use ddp")
    return Degrees(replicate=world_size)


@dataclass(frozen=True)
class Share:
    """The contiguous range of a step's micro-batches that one replica computes."""

    first: int
    count: int

    @property
    def indices(self) -> range:
        return range(self.first, self.first + self.count)


def share(total: int, replica: int, replicas: int) -> Share:
    """Cut `total` items into contiguous ranges whose sizes differ by one at most, the larger ones first."""
    base, extra = divmod(total, replicas)
    return Share(first=replica * base + min(replica, extra), count=base + (replica < extra))


@dataclass(frozen=True)
class Deal:
    """How a step's micro-batches are dealt out to the ranks, seen from one of them."""

    micro_batches: int
    rank: int = 0
    ranks: int = 1

    def of(self, rank: int) -> Share:
        return share(self.micro_batches, rank, self.ranks)

    @property
    def own(self) -> Share:
        return self.of(self.rank)

    @property
    def largest(self) -> int:
        """Micro-batches of the busiest rank, which the others wait for."""
        return self.of(0).count
