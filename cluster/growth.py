"""What every running gang does next: the whole queue and all gangs at once, since they share the free slots.

The queue comes first, with what it sets aside; then every gang up to its target, with its spares; what nobody wants is for gangs
that may grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cluster.elastic import Gang, Seat, given_up, kept, missing, next_change, retry_at, superfluous
from cluster.extension import Extension, explain, extend
from cluster.placement import NodeShare, NodeView, Placement, Reason, Request, Room, place
from cluster.views import Decision


@dataclass(frozen=True)
class Step:
    """One gang's: a new membership; else which slots it gets for parked ranks, which of those it lets go, and why it has no more."""

    job_id: str
    change: Decision | None = None
    seats: tuple[NodeShare, ...] = ()
    why: str = ""
    let_go: tuple[int, ...] = ()
    lacks: Reason | None = None


def next_steps(gangs: Sequence[Gang], waiting: Sequence[Request], nodes: Sequence[NodeView], now: datetime) -> list[Step]:
    """In the order of `gangs`, who are served in that order."""
    yielding = who_yields(gangs, waiting, nodes)
    gangs = [replace(gang, yields=gang.job_id in yielding) for gang in gangs]
    room = Room(nodes)
    place(waiting, nodes, room)
    due = [extend(_extension(gang, gang.target), nodes, room) for gang in gangs]
    more = [extend(_extension(gang, gang.limit, found), nodes, room) for gang, found in zip(gangs, due, strict=True)]
    return [_step(gang, found, extra, nodes, now) for gang, found, extra in zip(gangs, due, more, strict=True)]


def _extension(gang: Gang, size: int, found: Sequence[NodeShare] = ()) -> Extension:
    held = Counter([seat.node_id for seat in (*gang.members, *gang.parked)] + [share.node_id for share in found])
    return Extension(gang.job_id, missing(gang, size) - len(found), gang.slots_per_node, gang.device, held)


def _step(gang: Gang, due: tuple[NodeShare, ...], more: tuple[NodeShare, ...], nodes: Sequence[NodeView], now: datetime) -> Step:
    seats = () if given_up(gang.mishaps) else (*due, *more)
    change = next_change(gang, len(seats), now)
    if change is not None:
        return Step(gang.job_id, change)
    let_go = tuple(seat.rank for seat in superfluous(gang))
    again = retry_at(gang.mishaps)
    if again is not None and now < again:
        return Step(gang.job_id, let_go=let_go, lacks=_mishap(gang, again) if due else _lacks(gang, due, nodes))
    return Step(gang.job_id, seats=seats, why=_why(gang), let_go=let_go, lacks=_lacks(gang, due, nodes))


def _why(gang: Gang) -> str:
    again = f"; attempt {len(gang.mishaps) + 1}, the last one ended because: {gang.mishaps[-1].why}" if gang.mishaps else ""
    return f"{standing(gang)}{again}"


def _lacks(gang: Gang, found: Sequence[NodeShare], nodes: Sequence[NodeView]) -> Reason | None:
    wanted = _extension(gang, gang.target)
    if wanted.slots <= len(found):
        return None
    reason = explain(wanted, nodes, len(found))
    return replace(reason, text=f"{standing(gang)}; {reason.text}")


def _mishap(gang: Gang, again: datetime) -> Reason:
    last = gang.mishaps[-1]
    text = f"{standing(gang)}; {len(gang.mishaps)} that were to join ended before they could, the last one because: {last.why}"
    when = f"{again.isoformat(timespec='seconds')}"
    return Reason("cannot_join", text, next_step=f"tried again at {when}; read the logs of the rank that ended")


def standing(gang: Gang) -> str:
    """How far it is from what it should be."""
    if len(gang.members) < gang.target:
        return f"runs with {len(gang.members)} of {gang.target} ranks"
    if gang.leaving:
        return f"the node of rank {', '.join(str(seat.rank) for seat in gang.leaving)} drains"
    if missing(gang, gang.target) == 0:
        return f"runs with {len(gang.members)} of at most {gang.limit} ranks"
    return f"has {max(0, len(gang.members) + len(gang.pool) - gang.target)} of {gang.spares} spares"


def who_yields(gangs: Sequence[Gang], waiting: Sequence[Request], nodes: Sequence[NodeView]) -> frozenset[str]:
    """The gangs whose extra ranks stand in the way of a job that waits: of the first of them alone if that is enough, else of all."""
    extras = {gang.job_id: found for gang in gangs if (found := _beyond_target(gang))}
    for job_id, seats in extras.items():
        if _fits_somebody(waiting, nodes, seats):
            return frozenset({job_id})
    everything = [seat for seats in extras.values() for seat in seats]
    return frozenset(extras) if everything and _fits_somebody(waiting, nodes, everything) else frozenset()


def _beyond_target(gang: Gang) -> list[Seat]:
    stay = kept(gang, gang.target)
    parked = gang.pool[max(0, gang.target + gang.spares - len(stay)) :]
    return [*(seat for seat in gang.staying if seat not in stay), *parked]


def _fits_somebody(waiting: Sequence[Request], nodes: Sequence[NodeView], freed: Sequence[Seat]) -> bool:
    given: Mapping[str, list[int]] = {node.id: [seat.slot for seat in freed if seat.node_id == node.id] for node in nodes}
    emptier = [NodeView(n.id, n.name, n.device, n.slots, tuple(sorted({*n.free, *given[n.id]})), n.schedulable) for n in nodes]
    return any(isinstance(verdict, Placement) for verdict in place(waiting, emptier))
