"""What the autoscaler decides, each with its reason in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LaunchNodes:
    """Ask the pool's provider for so many nodes more."""

    pool: str
    count: int
    reason: str


@dataclass(frozen=True)
class DrainNode:
    """Drain a node that nobody needs, then end it."""

    node_id: str
    pool: str
    reason: str


@dataclass(frozen=True)
class Withheld:
    """A job that waits or lacks ranks, that no node is launched for now, and why. `pools`: each pool's own reason; empty where none was asked yet."""

    job_id: str
    reason: str
    pools: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScalingDecision:
    """Everything that one look at the cluster leads to."""

    launches: tuple[LaunchNodes, ...] = ()
    drains: tuple[DrainNode, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    grows_for: tuple[str, ...] = ()  # running jobs that nodes are launched for
    declined: tuple[str, ...] = ()  # running jobs that have not grown onto idle nodes, which are drained now
