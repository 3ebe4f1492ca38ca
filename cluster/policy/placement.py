"""Places queued jobs on slots, and says why the others wait: a pure function of the queue and the nodes.

A gang consists of equal *blocks* of slots; the slots of a block lie on one node. `nodes: 2, slots_per_node: 4` are two blocks of four,
which may share a node unless the job is `spread`; `slots: 6` are six blocks of one. Jobs are taken by priority, then age. A gang is
placed all or nothing, on nodes of one kind of device that meet its `Requirements`, on the fewest nodes, and of these the fullest; one
that may be smaller than it wants to be starts with as many blocks as there are. A job that is blocked sets free slots aside on the nodes
nearest to fitting it, so that smaller jobs that come later fill only what it cannot use: it is never starved. What is left in the `Room`
then goes to gangs that want more ranks (`cluster/policy/extension.py`).

Two wishes come before the fewest nodes. A job that fits into the free slots of the nodes that it `prefers` gets those: they hold its
checkpoint. Nodes that it `leaves_out`, since they could not start it, are passed over as long as the others could ever hold it: it waits
for these.

A script that saves in the job's own folder finds it on the nodes of its last generation alone (`last_held`). It gets as many of the slots that it had there as are
free, its ranks in the same order, and the rest elsewhere: on the first of these nodes is what rank 0 has saved.

A gang that saves in a folder, the default one of its nodes or one that it names, is placed on nodes that may share it (`cluster/policy/folders.py`), and
waits for those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from paceline.cluster.policy.folders import FolderSets, FoldersOfRoom, most_blocks
from paceline.cluster.policy.reasons import Explanations, PlacementReason, Shape
from paceline.cluster.policy.requirements import ANY_NODE, Requirements
from paceline.cluster.policy.room import AVAILABLE, SLOTS, UNPROMISED, NodeShare, NodeView, Room, Selection
from paceline.training.schema.parallelism import REPLICAS, Parallelism

__all__ = [
    "NodeShare",
    "NodeView",
    "PlacementReason",
    "Requirements",
    "Room",
]  # re-exported: they are part of the question and of the answer


@dataclass(frozen=True)
class Request:
    """The slots that a job asks for. Its blocks are of `slots_per_block` slots each."""

    job_id: str
    blocks: int
    slots_per_block: int
    priority: int
    queued_at: datetime
    min_blocks: int | None = None  # it starts with as few; None: with `blocks` and nothing less
    plan: Parallelism = REPLICAS  # which sizes it may have
    most_blocks: int | None = None  # it takes more than `blocks` where no job waits for them; None: it does not
    spread: bool = False  # no two blocks on one node
    requirements: Requirements = ANY_NODE
    prefers: frozenset[str] = frozenset()  # ids of nodes that it is placed on if it fits there
    leaves_out: frozenset[str] = frozenset()  # ids of nodes that it is not placed on while the others could hold it
    last_held: tuple[tuple[str, int], ...] = ()  # (id, slots) of the nodes that have its own folder as its last ranks left it, by node rank
    one_folder: bool = False  # its ranks need to see one folder for checkpoints
    directory: str | None = None  # the path of that folder; None: the default one of its nodes

    @property
    def fewest_blocks(self) -> int:
        return min(self.blocks, self.min_blocks or self.blocks)

    def blocks_of(self, available: int) -> int:
        """The number of blocks, of so many, that the job would start with; 0: they are too few."""
        sizes = range(min(available, self.blocks), self.fewest_blocks - 1, -1)
        return next((blocks for blocks in sizes if self.plan.misfit(blocks * self.slots_per_block) is None), 0)

    def groups(self, blocks: int) -> list[int]:
        """The numbers of neighbouring ranks that talk the most, and are kept on one node where they can be: the wider ones first."""
        if self.spread or not self.plan.in_parts:
            return []
        degrees = self.plan.degrees(blocks * self.slots_per_block)
        inner = degrees.tensor * degrees.context
        sizes = dict.fromkeys((inner * degrees.shard, inner))
        return [size for size in sizes if size > self.slots_per_block and size % self.slots_per_block == 0]


@dataclass(frozen=True)
class Placement:
    """The slots that a job gets, by node, in node-rank order."""

    job_id: str
    shares: tuple[NodeShare, ...]

    @property
    def slots(self) -> int:
        return sum(len(share.slots) for share in self.shares)


@dataclass(frozen=True)
class QueuedGang:
    job_id: str
    reason: PlacementReason


def place(queue: Iterable[Request], nodes: Sequence[NodeView], room: Room | None = None) -> list[Placement | QueuedGang]:
    """The verdict on every request, in the order in which they were considered. `room` (default: all free slots) is used up; it has to
    know what the queue requires of its nodes."""
    turns = sorted(queue, key=_turn)
    room = room or Room(nodes, {request.requirements for request in turns})
    explanations = Explanations(nodes, room)
    folders = FoldersOfRoom(room)
    verdicts = [_place_one(request, room, explanations, folders) for request in turns]
    return [_widened(request, verdict, room) for request, verdict in zip(turns, verdicts, strict=True)]


def _turn(request: Request) -> tuple[int, datetime, str]:
    return (-request.priority, request.queued_at, request.job_id)


def _place_one(request: Request, room: Room, explanations: Explanations, folders: FoldersOfRoom) -> Placement | QueuedGang:
    if request.leaves_out and not _could_hold(request, room):
        request = replace(request, leaves_out=frozenset())
    found = folders.sets_for(request.directory) if request.one_folder and request.blocks > 1 else None
    apart_sets = found if found is not None and found.sets else None
    if placement := _on_preferred(request, room) or (_in_one_folder(request, room, apart_sets) if apart_sets else _anywhere(request, room)):
        return placement
    shape, apart = Shape(request.fewest_blocks, request.slots_per_block, request.spread), frozenset[str]()
    if apart_sets is not None:
        apart = apart_sets.outside_widest(request.requirements, request.slots_per_block, spread=request.spread)
    waiting = QueuedGang(request.job_id, explanations.of(shape, request.requirements, request.leaves_out, apart, request.directory))
    _reserve(replace(request, leaves_out=request.leaves_out | apart) if apart else request, room)
    return waiting


def _could_hold(request: Request, room: Room) -> bool:
    """Whether the nodes that the job does not leave out could hold it, if they were empty."""
    kinds = room.selections(request.requirements, request.leaves_out)
    return any(each.blocks(SLOTS, request.slots_per_block, spread=request.spread) >= request.fewest_blocks for each in kinds)


def _on_preferred(request: Request, room: Room) -> Placement | None:
    """The placement on nothing but nodes that the job prefers; None where it does not fit there."""
    if not request.prefers:
        return None
    placement = _anywhere(request, room.part(request.prefers, request.requirements))
    for share in placement.shares if placement else ():
        room.nodes[share.node_id].take(len(share.slots))
    return placement


def _in_one_folder(request: Request, room: Room, folders: FolderSets) -> Placement | None:
    """The placement with the most blocks on nodes that may share a folder; of several the one on the fewest nodes, and of these the fullest."""
    best, best_rank = None, (0, 0, 0)
    for each in folders.sets:
        usable = [one for one in each if one.node.id not in request.leaves_out]
        blocks = most_blocks(usable, request.requirements, request.slots_per_block, spread=request.spread, available=True)
        if blocks < request.fewest_blocks or min(blocks, request.blocks) * request.slots_per_block < best_rank[0]:
            continue
        placement = _anywhere(replace(request, leaves_out=frozenset()), room.part([one.node.id for one in usable], request.requirements))
        if placement is None:
            continue
        rank = (placement.slots, -len(placement.shares), -sum(room.nodes[share.node_id].available for share in placement.shares))
        if best is None or rank > best_rank:
            best, best_rank = placement, rank
    for share in best.shares if best else ():
        room.nodes[share.node_id].take(len(share.slots))
    return best


def _anywhere(request: Request, room: Room) -> Placement | None:
    found, chosen = 0, None
    for each in room.selections(request.requirements, request.leaves_out):  # the first one that has the most of what is asked for
        fitting = min(each.blocks(AVAILABLE, request.slots_per_block, spread=request.spread), request.blocks)
        if chosen is None or fitting > found:
            found, chosen = fitting, each
    if chosen is None or not (blocks := request.blocks_of(found)):
        return None
    taken = _take_back(request, room, chosen, blocks) if request.last_held else _take(request, chosen, blocks)
    return Placement(request.job_id, tuple(taken))


def _take_back(request: Request, room: Room, chosen: Selection, blocks: int) -> list[NodeShare]:
    """So many blocks, which have to be available: on the nodes that the job was last on as many as it had there, in the same order, and the
    rest on any."""
    size, taken, passed_over = request.slots_per_block, dict[str, tuple[int, ...]](), chosen.without
    for node_id, slots in request.last_held:
        each = room.nodes.get(node_id)
        if each is None or each.pool not in chosen.pools or each in chosen.without:
            continue
        if count := min(1 if request.spread else blocks, blocks, slots // size, each.available // size):
            taken[node_id] = each.take(count * size).slots
            passed_over |= {each} if request.spread else frozenset()
            blocks -= count
    rest = replace(chosen, without=passed_over).take(size, blocks, spread=request.spread) if blocks else ()
    for share in rest:
        taken[share.node_id] = (*taken.get(share.node_id, ()), *share.slots)
    return [NodeShare(node_id, slots) for node_id, slots in taken.items()]


def _take(request: Request, chosen: Selection, blocks: int) -> list[NodeShare]:
    slots = blocks * request.slots_per_block
    for group in request.groups(blocks):
        if slots % group == 0 and chosen.blocks(AVAILABLE, group, spread=False) >= slots // group:
            return chosen.take(group, slots // group, spread=False)
    return chosen.take(request.slots_per_block, blocks, spread=request.spread)


def _widened(request: Request, verdict: Placement | QueuedGang, room: Room) -> Placement | QueuedGang:
    """The placement with further blocks on nodes of the same kind: first on its own nodes, then on those that it was last on, then on the
    fullest."""
    if isinstance(verdict, QueuedGang):
        return verdict
    size = request.slots_per_block
    more = (request.most_blocks or 0) - verdict.slots // size
    if more <= 0:
        return verdict
    held, last = {share.node_id: share.slots for share in verdict.shares}, dict(request.last_held)
    device = room.nodes[verdict.shares[0].node_id].node.device
    others = (each for each in room.nodes.values() if each.node.id not in request.leaves_out)
    usable = [each for each in others if each.node.device == device and each.node.obstacle(request.requirements) is None]
    for each in sorted(usable, key=lambda each: (each.node.id not in held, each.node.id not in last, each.available, each.order)):
        blocks = min(more, each.available // size)
        if request.spread:
            blocks = min(blocks, 0 if each.node.id in held else 1)
        if blocks > 0:
            held[each.node.id] = (*held.get(each.node.id, ()), *each.take(blocks * size).slots)
            more -= blocks
    return Placement(request.job_id, tuple(NodeShare(node_id, slots) for node_id, slots in held.items()))


def _reserve(request: Request, room: Room) -> None:
    """Set slots aside on the nodes nearest to fitting; a job that the cluster cannot hold at all blocks no other."""
    size, blocks, spread = request.slots_per_block, request.fewest_blocks, request.spread
    for each in room.selections(request.requirements, request.leaves_out):
        if each.blocks(UNPROMISED, size, spread=spread) >= blocks:
            each.set_aside(size, blocks, spread=spread)
            return
