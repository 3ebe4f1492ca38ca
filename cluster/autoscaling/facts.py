"""What the autoscaler decides from: pools, their nodes, launches under way, and jobs that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from paceline.cluster.policy.mounts import SHARED, NodeMounts
from paceline.cluster.policy.placement import Request

DEFAULT_IDLE_SECONDS = 300.0
DEFAULT_PATIENCE_SECONDS = 10.0
DEFAULT_LAUNCH_SECONDS = 60.0


@dataclass(frozen=True)
class PoolFacts:
    """A pool as its owner set it up, and what is known of its provider."""

    name: str
    slots: int  # of each node
    min_nodes: int = 0
    max_nodes: int = 1
    device: str = "cpu"
    labels: frozenset[str] = frozenset()  # as `policy.requirements.facets` gives them
    taints: frozenset[str] = frozenset()
    wrong_device: str = ""  # why its nodes are expected to have another device than its owner says, and what to do
    no_engine: str = ""  # why its nodes are expected to run no containers, and what to do
    no_shared_folder: str = ""  # why its next node is expected to share its default folder for checkpoints with no other, and what to do
    mounts: NodeMounts | None = None  # of its next node, as expected, but for the machine; None: not known
    spot: bool = False  # its nodes may be taken away at any time
    cost: float = 1.0  # of a node for an hour, in any unit that the pools have in common
    launch_seconds: float = DEFAULT_LAUNCH_SECONDS  # from a launch to a ready node, as it was of late
    idle_seconds: float = DEFAULT_IDLE_SECONDS  # how long a node is kept that no job uses
    budget_node_hours: float | None = None  # of the present period; None: no limit
    spent_node_hours: float = 0.0  # in it
    retry_at: datetime | None = None  # its provider refused, or its nodes failed: not asked again before
    interrupted_at: datetime | None = None  # when one of its nodes was taken away last

    @property
    def budget_is_spent(self) -> bool:
        """Whether nodes beyond the minimum may no longer be launched, nor kept while they are idle."""
        return self.budget_node_hours is not None and self.spent_node_hours >= self.budget_node_hours

    def blocks_per_node(self, request: Request) -> int:
        """How many blocks of the job an empty node holds."""
        return min(1 if request.spread else self.slots, self.slots // request.slots_per_block)

    def folder_of_next(self, directory: str | None, name: str) -> str | None:
        """The identity, as of `policy.folders.folder_of`, of a folder on a node that is to come, which has this name until then."""
        if directory is None:
            return name if self.no_shared_folder else None
        return replace(self.mounts, machine=name).place_of(directory) if self.mounts is not None else None

    def why_apart(self, request: Request) -> str:
        """Why its next node is expected to share the folder of a job that needs to see one with no other node, and what to do; empty: others may see it."""
        if self.folder_of_next(request.directory, self.name) in (None, SHARED):
            return ""
        if request.directory is None:
            return self.no_shared_folder
        return (
            f"it saves in {request.directory}, and each of {self.name}'s nodes has that folder on disks of its own: mount one file system there on all of "
            "them, name an object store, or set checkpoint.shared to true where it is one folder"
        )


@dataclass(frozen=True)
class NodeFacts:
    """A node that was ready once and has not left."""

    id: str
    pool: str | None
    slots: int
    free: int  # slots that no rank holds
    idle_since: datetime | None  # since when all of its slots are free; None: some are in use
    device: str = "cpu"
    labels: frozenset[str] = frozenset()  # as `policy.requirements.facets` gives them, with the facets of its tools
    taints: frozenset[str] = frozenset()
    schedulable: bool = True  # ready; not cordoned, draining, unreachable
    leaving: bool = False  # it drains: it still counts, and is not used
    lost_since: datetime | None = None  # since when its agent is given up; None: it is heard from, or its machine is to come back
    folder: str | None = None  # the disk of its default folder for checkpoints; None: others may see that folder too
    mounts: NodeMounts | None = None  # where other folders lie; None: not known

    @property
    def is_usable(self) -> bool:
        """Whether new jobs go there."""
        return self.schedulable and not self.leaving


@dataclass(frozen=True)
class PendingJob:
    """A job that waits for slots, or for further ones."""

    request: Request
    survives_interruption: bool = True  # it may run on nodes that can be taken away
    folder: str | None = None  # as of `NodeFacts`: where its ranks save, so that further ones have to see it; None: anywhere


@dataclass(frozen=True)
class ExpectedEnd:
    """A job that is expected to free its slots. `slots`: how many of them, by node."""

    job_id: str
    at: datetime
    slots: Mapping[str, int]


@dataclass(frozen=True)
class GrowingGang:
    """A job that runs with fewer ranks than it is to have, because no present node has room for more."""

    job: PendingJob  # its request is for the blocks that it lacks; `queued_at`: since when it is known to lack them
    sizes: tuple[int, ...]  # numbers of further blocks with which it could run, the largest first
    why: str  # its size, as in "runs with 2 of 4 ranks"
    occupied: frozenset[str] = frozenset()  # nodes that it takes no further block of
    rests_until: datetime | None = None  # it takes no ranks before
    retry_at: datetime | None = None  # there were nodes for it, and it has not grown: none is launched before
    restarting: bool = False  # on its way to a larger world on present nodes: these are kept for it, and none is launched


@dataclass(frozen=True)
class ScalingFacts:
    """All that one decision is made from. `launching`: how many nodes of each pool were asked for and were not ready yet;
    `ending`: how many have left and are not yet ended by their provider, so that their places are taken."""

    pools: Sequence[PoolFacts]
    nodes: Sequence[NodeFacts]
    pending: Sequence[PendingJob]
    launching: dict[str, int]
    ending: Mapping[str, int] = field(default_factory=dict)
    growing: Sequence[GrowingGang] = ()
    expected_ends: Sequence[ExpectedEnd] = ()  # of the jobs that hold slots, where one is known
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS  # how long a job waits before nodes are launched for it: it may start in a moment
