"""The world with which an elastic script should be started again while it runs: when there is room for more nodes, or it has too many.

torchrun's contract: all ranks get SIGTERM and the time to save, and are started again. The world that a script would get is not guessed:
the script is placed on paper along with all waiting jobs, on the nodes as they would be without it. It keeps its turn in the queue
(`queued_at`), so that the placement comes out the same. One script at a time: a stop takes its grace, and until then free slots look
free to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paceline.cluster.policy.decisions import Stop
from paceline.cluster.policy.elastic import RunningGang
from paceline.cluster.policy.placement import NodeView, Placement, PlacementReason, Request, place
from paceline.cluster.policy.reasons import Shape
from paceline.cluster.states import EndReason
from paceline.monitoring.backoff import doubled

#: How long a script is left at work before it is started again to grow; doubled with each change of its world within RECENT_SECONDS, at most LONGEST.
#: The first wait gathers nodes that come back one after the other.
REST_SECONDS = 10.0
LONGEST_REST_SECONDS = 600.0
RECENT_SECONDS = 1800.0


@dataclass(frozen=True)
class NextWorld:
    """The next world of a script. `change`: its ranks are to stop for it. `rests`: there is something to do later, without anything else
    changing."""

    change: Stop | None = None
    rests: bool = False
    lacks: PlacementReason | None = None


def rests_until(started: datetime, changes: int) -> datetime:
    """The time until which a script keeps its world. `started`: its present world. `changes`: recent changes of its world."""
    return started + timedelta(seconds=doubled(REST_SECONDS, LONGEST_REST_SECONDS, changes + 1))


def next_world(gang: RunningGang, request: Request, waiting: Sequence[Request], nodes: Sequence[NodeView], now: datetime) -> NextWorld:
    """The next world of a running script. It gives back nodes that it grew by where that helps a waiting job, and no more than that. A
    smaller size that its user wants is taken at once."""
    held = len(gang.members) // request.slots_per_block
    if held == request.blocks and (request.most_blocks or 0) <= held:
        return NextWorld()
    would, helps = _if_it_ended(gang, request, waiting, nodes)
    if held > max(request.blocks, request.most_blocks or 0) and 0 < would < held:
        return NextWorld(_start_again(request, held, would, f"it is to have {request.blocks}"))
    if helps and request.blocks <= would < held:
        return NextWorld(_start_again(request, held, would, "others wait for the slots"))
    if would <= held:
        return NextWorld(lacks=_no_room(request, held) if held < request.blocks else None)
    if gang.rests_until is not None and now < gang.rests_until:
        return NextWorld(rests=True, lacks=_rest(request, held, would, gang.rests_until) if held < request.blocks else None)
    return NextWorld(_start_again(request, held, would, "there is room for more"))


def _if_it_ended(gang: RunningGang, request: Request, waiting: Sequence[Request], nodes: Sequence[NodeView]) -> tuple[int, bool]:
    """(how many blocks the script would be placed with, 0: it would have to wait; whether any waiting job would be placed)."""
    verdicts = place([*waiting, request], [_without(node, gang) for node in nodes])
    placed = {each.job_id: each.slots for each in verdicts if isinstance(each, Placement)}
    return placed.pop(request.job_id, 0) // request.slots_per_block, bool(placed)


def _without(node: NodeView, gang: RunningGang) -> NodeView:
    own = {process.slot for process in gang.members if process.node_id == node.id}
    return replace(node, free=tuple(sorted({*node.free, *own}))) if own else node


def _start_again(request: Request, held: int, would: int, why: str) -> Stop:
    sizes = f"its ranks get SIGTERM and the time to save, and start again on {_sized(request, would)} instead of {held}"
    return Stop(EndReason.RESIZED, f"{why}: {sizes}", stops_ranks=True)


def _no_room(request: Request, held: int) -> PlacementReason:
    missing = Shape(request.blocks, request.slots_per_block, request.spread).missing(request.blocks - held, "free ")
    text = f"runs on {held} of {_sized(request, request.blocks)}; {missing} wanted"
    return PlacementReason("no_room_to_grow", text, missing, None, "add a node, or wait for another job to end")


def _rest(request: Request, held: int, would: int, until: datetime) -> PlacementReason:
    text = f"runs on {held} of {_sized(request, request.blocks)}; there is room for {would}, and it starts again with them at"
    return PlacementReason("rests", f"{text} {until.isoformat(timespec='seconds')}")


def _sized(request: Request, blocks: int) -> str:
    """The size as the job's user counts it."""
    return Shape(blocks, request.slots_per_block, request.spread).counted
