"""Which ranks a running gang gains and gives up, and why: replacements and spares, growing, shrinking, leaving a node that drains.

A gang never waits for a rank that is to join it: the rank is *parked* first, in a slot of its own, until model and optimizer are
built, and then takes its place by one change of membership at a step boundary. The policy is level-triggered: it looks at what
there is, and asks for the next thing that brings it closer to what it should be.

Sizes: `target` is what the job is to have. It grows beyond that, up to `most`, only in slots that nobody waits for, and is back
at `target` as soon as somebody does (`yields`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cluster.states import EndReason, Intent, JobState, RankState
from cluster.views import Decision, JobView
from training.spec.strategy import REPLICAS, Parallelism

#: How long a rank that is ready waits for others that are still starting, so that one change takes them all.
GATHER_SECONDS = 3.0
#: A parked rank that ended before it was of any use is tried again after this, doubled each time, at most LONGEST; after MOST_FAILURES no
#: more, until the oldest of them is FORGIVEN_SECONDS ago.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
MOST_FAILURES = 6
FORGIVEN_SECONDS = 1800.0


@dataclass(frozen=True)
class Seat:
    """A process of the gang and the slot it holds."""

    rank: int
    node_id: str
    slot: int
    leaving: bool = False  # its node drains
    ready_since: datetime | None = None  # of a parked one: since when it has only waited for a place


@dataclass(frozen=True)
class Mishap:
    """The end of a process that was to join and did not make it."""

    at: datetime
    why: str


@dataclass(frozen=True)
class Gang:
    job_id: str
    device: str
    slots_per_node: int
    members: tuple[Seat, ...]
    parked: tuple[Seat, ...]  # without those that were told to go
    least: int  # fewer do not go on by themselves
    target: int
    most: int
    ceiling: int  # its micro-batches: a rank beyond them would have nothing to do
    spares: int = 0
    mishaps: tuple[Mishap, ...] = ()  # of late, oldest first
    plan: Parallelism = REPLICAS  # which sizes it may have
    yields: bool = False  # somebody waits for the slots that it has beyond its target

    @property
    def staying(self) -> tuple[Seat, ...]:
        return tuple(seat for seat in self.members if not seat.leaving)

    @property
    def leaving(self) -> tuple[Seat, ...]:
        return tuple(seat for seat in self.members if seat.leaving)

    @property
    def pool(self) -> tuple[Seat, ...]:
        """Parked ranks of use: the ready ones first, and the longest."""
        useful = [seat for seat in self.parked if not seat.leaving]
        ready = [(seat.ready_since, seat.rank, seat) for seat in useful if seat.ready_since is not None]
        return (*(seat for _, _, seat in sorted(ready)), *(seat for seat in useful if seat.ready_since is None))

    @property
    def limit(self) -> int:
        return self.target if self.yields else max(self.target, self.most)


def is_steady(view: JobView) -> bool:
    """Whether ranks may come and go: nothing is wrong, nothing else is under way, and everybody can be told."""
    well = all(rank.state is RankState.RUNNING and not rank.broken and rank.reachable for rank in view.ranks)
    closes_up = view.min_ranks is not None
    return closes_up and view.state is JobState.RUNNING and view.desired is Intent.RUN and bool(view.ranks) and well


def missing(gang: Gang, size: int) -> int:
    """How many ranks it lacks to have `size` members and its spares, if everyone who is parked came through."""
    return max(0, size + gang.spares - len(gang.staying) - len(gang.pool))


def superfluous(gang: Gang) -> tuple[Seat, ...]:
    """Parked ranks that it has no use for: on a node that drains, or more than it may take; the least ready go."""
    wanted = max(0, gang.limit + gang.spares - len(gang.staying))
    return (*(seat for seat in gang.parked if seat.leaving), *gang.pool[wanted:])


def retry_at(mishaps: Sequence[Mishap]) -> datetime | None:
    """When the next attempt may be made; None: at once."""
    if not mishaps:
        return None
    if given_up(mishaps):
        return mishaps[-MOST_FAILURES].at + timedelta(seconds=FORGIVEN_SECONDS)
    return mishaps[-1].at + timedelta(seconds=min(LONGEST_RETRY_SECONDS, RETRY_SECONDS * 2 ** (len(mishaps) - 1)))


def given_up(mishaps: Sequence[Mishap]) -> bool:
    return len(mishaps) >= MOST_FAILURES


def next_change(gang: Gang, coming: int, now: datetime) -> Decision | None:
    """The next membership, if it is time for one. `coming`: parked ranks that were asked for a moment ago."""
    if len(gang.staying) > gang.limit:
        return _shrink(gang)
    change = _take_in(gang, _joining(gang, coming, now))
    return _exchange(gang, ()) if change is None and gang.leaving and not _awaited(gang, coming) else change


def _shrink(gang: Gang) -> Decision:
    stay = kept(gang, gang.plan.largest(gang.limit))
    why = "others wait for the slots" if gang.yields and len(gang.members) > gang.target else f"it is to have {gang.target}"
    return _change(gang, stay, (), why)


def kept(gang: Gang, size: int) -> tuple[Seat, ...]:
    """Who stays of those who can: nodes that have most of its ranks keep them, so that whole nodes become free."""
    on_node = Counter(seat.node_id for seat in gang.staying)
    chosen = sorted(gang.staying, key=lambda seat: (-on_node[seat.node_id], seat.rank))[:size]
    return tuple(sorted(chosen, key=lambda seat: seat.rank))


def _joining(gang: Gang, coming: int, now: datetime) -> tuple[Seat, ...]:
    places = _places(gang)
    ready = [seat for seat in gang.pool if seat.ready_since is not None][:places]
    first = min((seat.ready_since for seat in ready if seat.ready_since), default=now)
    patient = now - first < timedelta(seconds=GATHER_SECONDS)
    return () if len(ready) < places and patient and _warming(gang, coming) else tuple(ready)


def _places(gang: Gang) -> int:
    """How many may come in. Spares take the place of members; growing beyond the target is for others."""
    stay = len(gang.staying)
    return max(0, gang.target - stay, min(gang.limit - stay, len(gang.pool) - gang.spares))


def _awaited(gang: Gang, coming: int) -> bool:
    """Whether those who leave had better wait for somebody to take their place."""
    return len(gang.staying) < gang.limit and _warming(gang, coming)


def _warming(gang: Gang, coming: int) -> bool:
    return coming > 0 or any(seat.ready_since is None for seat in gang.pool)


def _take_in(gang: Gang, joining: Sequence[Seat]) -> Decision | None:
    """As many of them as make a world that the plan fits."""
    some = (_exchange(gang, joining[:count]) for count in range(len(joining), 0, -1))
    return next((change for change in some if change is not None), None)


def _exchange(gang: Gang, joining: Sequence[Seat]) -> Decision | None:
    """Joiners come in, and those on draining nodes go, except as many as are needed for now: a rank that joins brings no state
    along, and might not make it."""
    held_back = gang.leaving[: _needed(gang, len(joining))]
    joining = tuple(joining)[: max(0, gang.ceiling - len(gang.staying) - len(held_back))]
    if not joining and len(held_back) == len(gang.leaving):
        return _preempt(gang) if gang.leaving else None
    stay = tuple(seat for seat in gang.members if not seat.leaving or seat in held_back)
    if gang.plan.misfit(len(stay) + len(joining)):
        return None if joining else _leave(gang)
    reasons = [f"rank {_listed(joining)} is warm and takes a place"] if joining else []
    reasons += [f"the node of rank {_listed(gang.leaving)} drains"] if gang.leaving else []
    return _change(gang, stay, joining, "; ".join(reasons))


def _leave(gang: Gang) -> Decision:
    """Those on draining nodes go, and as many others as it takes to be of a size that the plan fits."""
    stay = kept(gang, gang.plan.largest(len(gang.staying), gang.least))
    return _change(gang, stay, (), f"the node of rank {_listed(gang.leaving)} drains") if stay else _preempt(gang)


def _needed(gang: Gang, joining: int) -> int:
    """How many of those who leave: enough to go on without the joiners or, where there is no room for all, one that has the state. A state
    in parts is saved first, for whoever is there afterwards."""
    stay = len(gang.staying)
    if gang.plan.in_parts:
        return max(gang.least - stay - joining, 0 if stay else 1)
    room = max(gang.ceiling - stay - joining, 0 if stay else 1)
    return min(max(0, gang.least - stay), room) if joining else max(0, gang.least - stay)


def _preempt(gang: Gang) -> Decision:
    """Nobody can take over, and too few would be left."""
    why = f"the node of rank {_listed(gang.leaving)} drains and no other slot is free: its ranks save and exit, and the job waits for slots"
    return Decision(JobState.STOPPING, EndReason.PREEMPTED, why)


def _change(gang: Gang, stay: Sequence[Seat], joining: Sequence[Seat], why: str) -> Decision:
    before, after = len(gang.members), len(stay) + len(joining)
    sizes = f"from {before} to {after}" if after != before else f"still {after}"
    return Decision(
        JobState.RESIZING,
        EndReason.RESIZED,
        f"{why}: {sizes} rank{'' if after == 1 else 's'}",
        survivors=tuple(seat.rank for seat in stay),
        joining=tuple(seat.rank for seat in joining),
        at_boundary=True,
    )


def _listed(seats: Sequence[Seat]) -> str:
    return ", ".join(str(seat.rank) for seat in seats)
