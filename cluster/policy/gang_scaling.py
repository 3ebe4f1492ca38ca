"""A plan for every running gang: the whole queue and all gangs at once, since they share the free slots.

The queue comes first, with the slots that it reserves; then every gang up to its target, with its spares; slots that are left go to gangs
that may grow. These give them back when a job waits for them, or another gang lacks ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paceline.cluster.policy.decide import PREPARATION_SECONDS, START_SECONDS
from paceline.cluster.policy.decisions import GangChange
from paceline.cluster.policy.elastic import RunningGang, SlotAssignment, given_up, kept, missing, next_change, retry_at, superfluous
from paceline.cluster.policy.extension import Extension, explain, extend
from paceline.cluster.policy.placement import NodeShare, NodeView, Placement, PlacementReason, Request, Room, place
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.policy.script_worlds import next_world

#: How long the pass with which a rank warms up may take, and what it compiles. A member of a starting gang is ready without one.
WARM_UP_SECONDS = 600.0


@dataclass(frozen=True)
class GangPlan:
    """The next change of one gang: parked ranks that are given up, or a new membership, or the slots that it gets for parked ranks and the parked
    ranks that are released. With `lacks`, the reason why it has no more."""

    job_id: str
    change: GangChange | None = None
    new_slots: tuple[NodeShare, ...] = ()
    why: str = ""
    released: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()  # parked ranks that did not get ready in time
    lacks: PlacementReason | None = None
    rests: bool = False  # there is something to do later, without anything else changing


def plan_gangs(
    gangs: Sequence[RunningGang], waiting: Sequence[Request], nodes: Sequence[NodeView], now: datetime, *, restarting: bool = False
) -> list[GangPlan]:
    """Plan the next change of each gang, served in the order of `gangs`; elastic scripts last, and one at a time. `restarting`: a script is on
    its way to another world already."""
    living = _living_plans([gang for gang in gangs if gang.request is None], waiting, nodes, now)
    busy = restarting or any(plan.new_slots for plan in living)
    return [*living, *_script_plans([gang for gang in gangs if gang.request is not None], waiting, nodes, now, busy=busy)]


def _script_plans(
    gangs: Sequence[RunningGang], waiting: Sequence[Request], nodes: Sequence[NodeView], now: datetime, *, busy: bool
) -> list[GangPlan]:
    """The plans of elastic scripts. `busy`: another gang is about to take slots, so that free ones may not be free for long."""
    found: list[GangPlan] = []
    for gang in gangs:
        assert gang.request is not None
        world = next_world(gang, gang.request, waiting, nodes, now)
        withheld = busy and world.change is not None
        busy = busy or world.change is not None
        found.append(GangPlan(gang.job_id, None if withheld else world.change, lacks=world.lacks, rests=world.rests or withheld))
    return found


def _living_plans(gangs: Sequence[RunningGang], waiting: Sequence[Request], nodes: Sequence[NodeView], now: datetime) -> list[GangPlan]:
    """The plans of gangs whose ranks come and go while they run."""
    due, room = _due(gangs, waiting, nodes)
    yielding = gangs_to_shrink(gangs, waiting, nodes) | gangs_beyond_others_share(gangs, due, waiting, nodes, now)
    gangs = [replace(gang, yields=gang.job_id in yielding) for gang in gangs]
    more = [extend(_extension(gang, gang.limit, found), nodes, room) for gang, found in zip(gangs, due, strict=True)]
    return [_plan(gang, found, extra, nodes, now) for gang, found, extra in zip(gangs, due, more, strict=True)]


def _due(gangs: Sequence[RunningGang], waiting: Sequence[Request], nodes: Sequence[NodeView]) -> tuple[list[tuple[NodeShare, ...]], Room]:
    """(the slots that each gang gets up to its target, the room that is left then)."""
    room = Room(nodes, {request.requirements for request in waiting})
    place(waiting, nodes, room)
    return [extend(_extension(gang, gang.target), nodes, room) for gang in gangs], room


def _extension(gang: RunningGang, size: int, found: Sequence[NodeShare] = ()) -> Extension:
    held = Counter([process.node_id for process in (*gang.members, *gang.parked)] + [share.node_id for share in found])
    slots, failures = missing(gang, size) - len(found), Counter(failure.node_id for failure in gang.join_failures)
    lacking = _lacking(gang, size, found)
    return Extension(
        gang.job_id,
        slots,
        gang.most_per_node,
        gang.device,
        held,
        gang.requirements,
        block=gang.block,
        spares=max(0, slots - lacking),
        failures=failures,
        one_folder=gang.one_folder,
        directory=gang.directory,
    )


def _lacking(gang: RunningGang, size: int, found: Sequence[NodeShare]) -> int:
    """How many ranks the gang lacks, with those in slots that were found for it, to have so many; spares do not count."""
    return max(0, size - len(gang.staying) - len(gang.pool) - len(found))


def _plan(gang: RunningGang, due: tuple[NodeShare, ...], more: tuple[NodeShare, ...], nodes: Sequence[NodeView], now: datetime) -> GangPlan:
    if late := overdue(gang, now):
        return GangPlan(
            gang.job_id, given_up=tuple(process.rank for process in late), why=f"it did not get ready within {_patience(late[0]):.0f} s"
        )
    new_slots = () if given_up(gang.join_failures) else (*due, *more)
    change = next_change(gang, len(new_slots), now)
    if change is not None:
        return GangPlan(gang.job_id, change)
    released = tuple(process.rank for process in superfluous(gang))
    again = retry_at(gang.join_failures)
    if again is not None and now < again:
        return GangPlan(gang.job_id, released=released, lacks=_join_failed(gang, again) if due else _lacks(gang, due, nodes))
    return GangPlan(gang.job_id, new_slots=new_slots, why=_why(gang), released=released, lacks=_lacks(gang, due, nodes))


def overdue(gang: RunningGang, now: datetime) -> tuple[SlotAssignment, ...]:
    """Parked ranks that do not get ready: they may wait for something that never comes, and draining nodes wait for them."""
    starting = ((process, process.starts_since) for process in gang.pool)
    return tuple(process for process, since in starting if since is not None and now - since >= timedelta(seconds=_patience(process)))


def _patience(process: SlotAssignment) -> float:
    return START_SECONDS + WARM_UP_SECONDS + (PREPARATION_SECONDS if process.prepares else 0.0)


def _why(gang: RunningGang) -> str:
    again = (
        f"; attempt {len(gang.join_failures) + 1}, the last one ended because: {gang.join_failures[-1].why}" if gang.join_failures else ""
    )
    return f"{distance_to_target(gang)}{again}"


def _lacks(gang: RunningGang, found: Sequence[NodeShare], nodes: Sequence[NodeView]) -> PlacementReason | None:
    wanted = _extension(gang, gang.target)
    if wanted.slots <= len(found):
        return None
    reason = explain(wanted, nodes, len(found))
    return replace(reason, text=f"{distance_to_target(gang)}; {reason.text}")


def _join_failed(gang: RunningGang, again: datetime) -> PlacementReason:
    last = gang.join_failures[-1]
    text = (
        f"{distance_to_target(gang)}; {len(gang.join_failures)} that were to join ended before they could, the last one because: {last.why}"
    )
    when = f"{again.isoformat(timespec='seconds')}"
    return PlacementReason("cannot_join", text, next_step=f"tried again at {when}; read the logs of the rank that ended")


def distance_to_target(gang: RunningGang) -> str:
    """How far the gang is from what it should be, for a sentence."""
    if len(gang.members) < gang.target:
        return f"runs with {len(gang.members)} of {gang.target} ranks"
    if gang.leaving:
        return f"the node of rank {listed(gang.leaving)} drains"
    if missing(gang, gang.target) == 0:
        return f"runs with {len(gang.members)} of at most {gang.limit} ranks"
    return f"has {max(0, len(gang.members) + len(gang.pool) - gang.target)} of {gang.spares} spares"


def gangs_to_shrink(gangs: Sequence[RunningGang], waiting: Sequence[Request], nodes: Sequence[NodeView]) -> frozenset[str]:
    """The gangs whose extra ranks keep a waiting job from its slots: the first of them alone if that is enough, else all. A job that fits
    beside them needs nothing of theirs: it is about to be placed."""
    if not waiting:
        return frozenset()
    fitting = _fitting(waiting, nodes)
    return _first_of_use(gangs, lambda freed: bool(_fitting(waiting, _emptier(nodes, freed)) - fitting))


def gangs_beyond_others_share(
    gangs: Sequence[RunningGang], due: Sequence[tuple[NodeShare, ...]], waiting: Sequence[Request], nodes: Sequence[NodeView], now: datetime
) -> frozenset[str]:
    """The gangs whose extra ranks keep another gang from a block that it is to have: as `gangs_to_shrink`. `due`: the slots that each gang gets
    up to its target without that. Spares, and a gang whose ranks fail to join, take nothing away."""
    lacking = [0 if _rests(gang, now) else _lacking(gang, gang.target, found) for gang, found in zip(gangs, due, strict=True)]
    if not any(lacking):
        return frozenset()

    def is_of_use(freed: Sequence[SlotAssignment]) -> bool:
        better, _ = _due(gangs, waiting, _emptier(nodes, freed))
        gained = [len(after) - len(before) for after, before in zip(better, due, strict=True)]
        return any(lacks and gain >= min(gang.block, lacks) for gang, lacks, gain in zip(gangs, lacking, gained, strict=True))

    return _first_of_use(gangs, is_of_use)


def _rests(gang: RunningGang, now: datetime) -> bool:
    """Whether the gang would use no new slot now, since ranks that were to join have failed."""
    again = retry_at(gang.join_failures)
    return again is not None and now < again


def _first_of_use(gangs: Sequence[RunningGang], is_of_use: Callable[[Sequence[SlotAssignment]], bool]) -> frozenset[str]:
    """The first gang whose processes beyond its target hold slots that are of use to others, once they are free; else all, if together they are."""
    extras = {gang.job_id: found for gang in gangs if (found := _beyond_target(gang))}
    for job_id, freed in extras.items():
        if is_of_use(freed):
            return frozenset({job_id})
    everything = [process for freed in extras.values() for process in freed]
    return frozenset(extras) if len(extras) > 1 and is_of_use(everything) else frozenset()


def _beyond_target(gang: RunningGang) -> list[SlotAssignment]:
    stay = kept(gang, gang.target)
    parked = gang.pool[max(0, gang.target + gang.spares - len(stay)) :]
    return [*(process for process in gang.staying if process not in stay), *parked]


def _fitting(waiting: Sequence[Request], nodes: Sequence[NodeView]) -> set[str]:
    """The waiting jobs that fit."""
    return {verdict.job_id for verdict in place(waiting, nodes) if isinstance(verdict, Placement)}


def _emptier(nodes: Sequence[NodeView], freed: Sequence[SlotAssignment]) -> list[NodeView]:
    """The nodes once these slots are free too."""
    given = defaultdict[str, set[int]](set)
    for process in freed:
        given[process.node_id].add(process.slot)
    return [replace(node, free=tuple(sorted(given[node.id].union(node.free)))) if node.id in given else node for node in nodes]
