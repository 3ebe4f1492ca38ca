"""Places queued jobs on slots, and says why the others wait: a pure function of the queue and the nodes.

Jobs are taken by priority, then age. A gang is placed all or nothing, on nodes of one kind of device, each on the fullest
node that still fits it; one that may be smaller than it wants to be starts with as many nodes as there are. A job that is
blocked sets free slots aside on the nodes nearest to fitting it, so that smaller jobs that come later fill only what it
cannot use: it is never starved. What is left in the `Room` then goes to gangs that want more ranks (`cluster/policy/extension.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from paceline.cluster.policy.room import Kind, NodeShare, NodeView, Room, at_least
from paceline.training.schema.parallelism import REPLICAS, Parallelism

__all__ = ["NodeShare", "NodeView", "Room"]  # re-exported: they are part of the question and of the answer


@dataclass(frozen=True)
class Request:
    job_id: str
    nodes: int
    slots_per_node: int
    priority: int
    queued_at: datetime
    min_nodes: int | None = None  # it starts with as few; None: with `nodes` and nothing less
    plan: Parallelism = REPLICAS  # which sizes it may have
    most_nodes: int | None = None  # it takes more than `nodes` where no job waits for them; None: it does not

    @property
    def fewest_nodes(self) -> int:
        return min(self.nodes, self.min_nodes or self.nodes)

    def nodes_of(self, available: int) -> int:
        """The number of nodes, of so many, that the job would start with; 0: they are too few."""
        sizes = range(min(available, self.nodes), self.fewest_nodes - 1, -1)
        return next((nodes for nodes in sizes if self.plan.misfit(nodes * self.slots_per_node) is None), 0)


@dataclass(frozen=True)
class Placement:
    """One share per node, in node-rank order."""

    job_id: str
    shares: tuple[NodeShare, ...]

    @property
    def slots(self) -> int:
        return sum(len(share.slots) for share in self.shares)


@dataclass(frozen=True)
class PlacementReason:
    code: str
    text: str
    missing: str | None = None
    nearest_fit: str | None = None
    next_step: str | None = None


@dataclass(frozen=True)
class QueuedGang:
    job_id: str
    reason: PlacementReason


def place(queue: Iterable[Request], nodes: Sequence[NodeView], room: Room | None = None) -> list[Placement | QueuedGang]:
    """The verdict on every request, in the order in which they were considered. `room` (default: all free slots) is used up."""
    room = room or Room(nodes)
    explanations = Explanations(nodes, room)
    turns = sorted(queue, key=_turn)
    verdicts = [_place_one(request, room, explanations) for request in turns]
    return [_widened(request, verdict, room) for request, verdict in zip(turns, verdicts, strict=True)]


def _turn(request: Request) -> tuple[int, datetime, str]:
    return (-request.priority, request.queued_at, request.job_id)


def _place_one(request: Request, room: Room, explanations: Explanations) -> Placement | QueuedGang:
    slots = request.slots_per_node
    found, kind = 0, None
    for each in room.kinds:  # the first one that has the most of what is asked for
        fitting = min(at_least(each.available, slots), request.nodes)
        if kind is None or fitting > found:
            found, kind = fitting, each
    if kind is not None and (nodes := request.nodes_of(found)):
        return Placement(request.job_id, tuple(kind.take(node, slots) for node in kind.fullest(slots, nodes)))
    pending = QueuedGang(request.job_id, explanations.of(request.fewest_nodes, slots))
    _reserve(request.fewest_nodes, slots, room)
    return pending


def _widened(request: Request, verdict: Placement | QueuedGang, room: Room) -> Placement | QueuedGang:
    """The placement, extended by free slots on further nodes of the same kind, the fullest first."""
    if isinstance(verdict, QueuedGang) or (request.most_nodes or 0) <= len(verdict.shares):
        return verdict
    kind, held, slots = room.nodes[verdict.shares[0].node_id].kind, {share.node_id for share in verdict.shares}, request.slots_per_node
    fitting = [each for each in kind.nodes if each.available >= slots and each.node.id not in held]
    fitting.sort(key=lambda each: (each.available, each.order))
    more = [kind.take(each, slots) for each in fitting[: (request.most_nodes or 0) - len(verdict.shares)]]
    return Placement(request.job_id, (*verdict.shares, *more))


def _reserve(nodes: int, slots: int, room: Room) -> None:
    """Set slots aside on the nodes nearest to fitting; a job that the cluster cannot hold at all blocks no other."""
    for kind in room.kinds:
        if at_least(kind.unpromised, slots) >= nodes:
            for node in kind.nearest(slots, nodes):
                kind.set_aside(node, slots)
            return


class Explanations:
    """Why jobs that are not placed wait, with the room as it is when the question is asked."""

    def __init__(self, nodes: Sequence[NodeView], room: Room) -> None:
        self._nodes, self._room = nodes, room
        self._largest = max((each.node for each in room.nodes.values()), key=lambda node: (node.slots, node.name), default=None)
        self._excluded: dict[int, list[str]] = {}  # by slots

    def of(self, nodes: int, slots: int) -> PlacementReason:
        """The reason for a job that starts with no fewer nodes than this, and so many slots on each."""
        if not self._nodes:
            shape = _shape(nodes, slots)
            return PlacementReason("no_nodes", f"needs {shape}; no node has joined", shape, None, "add a node: paceline worker")
        wide = self._most(slots, _slots)
        if wide < nodes:
            return self._too_small(nodes, slots, wide)
        shape = _shape(nodes, slots, "free ")
        if self._most(slots, _free) >= nodes:
            text = f"needs {shape}; the free ones are kept for a job that was here first or has a higher priority"
            return PlacementReason("reserved", text, _shape(nodes, slots), None, "wait, or raise the priority")
        nearest = self._largest_free()
        missing = f"{_of(nodes - self._most(slots, _available), 'more node')} with {_of(slots, 'free slot')}"
        return PlacementReason("slots_taken", f"needs {shape}; {nearest}", missing, nearest, "wait for a job to end, or add a node")

    def _most(self, slots: int, counted: Callable[[Kind], Mapping[int, int]]) -> int:
        """The number of nodes with so many slots, of the kind of device that has the most such nodes."""
        return max((at_least(counted(kind), slots) for kind in self._room.kinds), default=0)

    def _too_small(self, nodes: int, slots: int, wide: int) -> PlacementReason:
        excluded = self._excluded_with(slots)
        nearest = f"the largest has {_of(self._largest.slots, 'slot')} ({self._largest.name})" if self._largest else "no node is ready"
        shape, lacking = _shape(nodes, slots), _of(nodes - wide, "more node")
        if excluded and wide + len(excluded) >= nodes:
            names = ", ".join(excluded)
            text = f"needs {shape}; {_of(wide, 'such node')} ready; no new jobs go to {names}"
            return PlacementReason("nodes_unavailable", text, lacking, nearest, f"bring back or uncordon {names}")
        text = f"needs {shape}; the cluster has {_of(wide, 'such node')}: {nearest}"
        way_out = "add nodes, or ask for fewer nodes or slots_per_node"
        return PlacementReason("cluster_too_small", text, f"{lacking} with {_of(slots, 'slot')}", nearest, way_out)

    def _excluded_with(self, slots: int) -> list[str]:
        """The names of the nodes that have so many slots and get no new jobs."""
        if slots not in self._excluded:
            self._excluded[slots] = sorted(node.name for node in self._nodes if not node.schedulable and node.slots >= slots)
        return self._excluded[slots]

    def _largest_free(self) -> str:
        largest = max((kind.largest for kind in self._room.kinds), key=lambda room: (room.available, room.node.name))
        return f"the largest free is {largest.available} (node {largest.node.name})"


def _slots(kind: Kind) -> Mapping[int, int]:
    return kind.slots


def _free(kind: Kind) -> Mapping[int, int]:
    return kind.free


def _available(kind: Kind) -> Mapping[int, int]:
    return kind.available


def _of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _shape(nodes: int, slots: int, free: str = "") -> str:
    each = " each" if nodes > 1 else ""
    return f"{_of(nodes, 'node')} with {_of(slots, f'{free}slot')}{each}"
