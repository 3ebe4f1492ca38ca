"""The ranks that a running gang gains and gives up, and why: replacements and spares, growing, shrinking, leaving a node that drains.

A gang never waits for a rank that is to join it: the rank is *parked* first, in a slot of its own, until model and optimizer are built,
and then takes its place by one change of membership at a step boundary. The policy is level-triggered: it looks at the present state,
and asks for the next thing that brings the gang closer to what it should be.

Sizes: `target` is the size that the job is to have. It grows beyond that, up to `most`, only in slots that no job waits for, and is back
at `target` as soon as a job does, or another gang has fewer ranks than its own target (`yields`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from paceline.cluster.policy.decisions import GangChange, Members, ResizeGang, Stop
from paceline.cluster.policy.placement import Request
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.policy.requirements import ANY_NODE, Requirements
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from paceline.monitoring.backoff import doubled
from paceline.training.schema.parallelism import REPLICAS, Parallelism

#: How long a rank that is ready waits for others that are still starting, so that one change takes them all.
GATHER_SECONDS = 3.0
#: A parked rank that ended before it was of any use is tried again after this, doubled each time, at most LONGEST; after MOST_FAILURES no
#: more, until the oldest of them is FORGIVEN_SECONDS ago.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
MOST_FAILURES = 6
FORGIVEN_SECONDS = 1800.0


@dataclass(frozen=True)
class SlotAssignment:
    """A process of the gang and the slot it holds."""

    rank: int
    node_id: str
    slot: int
    leaving: bool = False  # its node drains
    ready_since: datetime | None = None  # of a parked one: since when it has only waited for a place
    starts_since: datetime | None = None  # of a parked one that is not ready, and whose agent could say so
    prepares: bool = False  # its node gets code or installs packages for it


@dataclass(frozen=True)
class JoinFailure:
    """The end of a process that was to join and did not make it."""

    at: datetime
    why: str
    node_id: str = ""
    timed_out: bool = False  # another attempt may take as long


@dataclass(frozen=True)
class RunningGang:
    job_id: str
    device: str
    most_per_node: int | None  # of its processes; None: as many as the node has slots
    members: tuple[SlotAssignment, ...]
    parked: tuple[SlotAssignment, ...]  # without those that were told to go
    least: int  # fewer do not go on by themselves
    target: int
    most: int
    ceiling: int  # its micro-batches: a rank beyond them would have nothing to do
    spares: int = 0
    block: int = 1  # slots that are on one node together
    join_failures: tuple[JoinFailure, ...] = ()  # of late, oldest first
    plan: Parallelism = REPLICAS  # which sizes it may have
    requirements: Requirements = ANY_NODE
    one_folder: bool = False  # its ranks need to see one folder for checkpoints
    directory: str | None = None  # the path of that folder; None: the default one of its nodes
    yields: bool = False  # a job waits for the slots that it has beyond its target, or another gang lacks them
    request: Request | None = None  # of an elastic script: what it would ask for if it were started again (`cluster.policy.script_worlds`)
    rests_until: datetime | None = None  # an elastic script does not grow before

    @property
    def staying(self) -> tuple[SlotAssignment, ...]:
        return tuple(process for process in self.members if not process.leaving)

    @property
    def leaving(self) -> tuple[SlotAssignment, ...]:
        return tuple(process for process in self.members if process.leaving)

    @property
    def pool(self) -> tuple[SlotAssignment, ...]:
        """Parked ranks that can be used: the ready ones first, and of those the longest waiting."""
        useful = [process for process in self.parked if not process.leaving]
        ready = [(process.ready_since, process.rank, process) for process in useful if process.ready_since is not None]
        return (*(process for _, _, process in sorted(ready)), *(process for process in useful if process.ready_since is None))

    @property
    def limit(self) -> int:
        return self.target if self.yields else max(self.target, self.most)


def is_steady(view: JobView) -> bool:
    """Whether ranks may come and go: there is no fault, no other change is under way, and every rank can be told."""
    well = all(rank.state is RankState.RUNNING and not rank.broken and rank.reachable for rank in view.ranks)
    can_change = view.min_ranks is not None or view.is_elastic
    return can_change and view.state is JobState.RUNNING and view.desired is Intent.RUN and bool(view.ranks) and well


def missing(gang: RunningGang, size: int) -> int:
    """How many ranks the gang lacks to have `size` members and its spares, if every parked rank joined."""
    return max(0, size + gang.spares - len(gang.staying) - len(gang.pool))


def superfluous(gang: RunningGang) -> tuple[SlotAssignment, ...]:
    """Parked ranks that the gang has no use for: on a node that drains, or more than it may take; the least ready go."""
    wanted = max(0, gang.limit + gang.spares - len(gang.staying))
    return (*(process for process in gang.parked if process.leaving), *gang.pool[wanted:])


def retry_at(join_failures: Sequence[JoinFailure]) -> datetime | None:
    """When the next attempt to join may be made; None: at once."""
    if not join_failures:
        return None
    if given_up(join_failures):
        return join_failures[-MOST_FAILURES].at + timedelta(seconds=FORGIVEN_SECONDS)
    return join_failures[-1].at + timedelta(seconds=retry_seconds(len(join_failures)))


def retry_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row, one at least, before the next attempt."""
    return doubled(RETRY_SECONDS, LONGEST_RETRY_SECONDS, failures)


def given_up(join_failures: Sequence[JoinFailure]) -> bool:
    return len(join_failures) >= MOST_FAILURES


def next_change(gang: RunningGang, coming: int, now: datetime) -> GangChange | None:
    """The next change of members, if it is time for one. `coming`: parked ranks that were asked for a moment ago."""
    if len(gang.staying) > gang.limit:
        return _shrink(gang)
    change = _take_in(gang, _joining(gang, coming, now))
    if change is None and gang.leaving and not _awaited(gang, coming):
        return _exchange(gang, ())
    return change


def _shrink(gang: RunningGang) -> ResizeGang:
    stay = kept(gang, gang.plan.largest(gang.limit))
    why = "others wait for the slots" if gang.yields and len(gang.members) > gang.target else f"it is to have {gang.target}"
    return _change(gang, stay, (), why)


def kept(gang: RunningGang, size: int) -> tuple[SlotAssignment, ...]:
    """The members that stay when the gang shrinks: parameter servers, which have what no other rank has; then nodes with most of its
    ranks keep them, so that whole nodes become free."""
    on_node = Counter(process.node_id for process in gang.staying)
    servers = gang.plan.servers if gang.plan.has_servers else 0
    chosen = sorted(gang.staying, key=lambda process: (process.rank >= servers, -on_node[process.node_id], process.rank))[:size]
    return tuple(sorted(chosen, key=lambda process: process.rank))


def _joining(gang: RunningGang, coming: int, now: datetime) -> tuple[SlotAssignment, ...]:
    places = _places(gang)
    ready = [process for process in gang.pool if process.ready_since is not None][:places]
    first = min((process.ready_since for process in ready if process.ready_since), default=now)
    patient = now - first < timedelta(seconds=GATHER_SECONDS)
    return () if len(ready) < places and patient and _warming(gang, coming) else tuple(ready)


def _places(gang: RunningGang) -> int:
    """How many parked ranks may join. Spares replace members; growing beyond the target is left to other jobs."""
    stay = len(gang.staying)
    return max(0, gang.target - stay, min(gang.limit - stay, len(gang.pool) - gang.spares))


def _awaited(gang: RunningGang, coming: int) -> bool:
    """Whether the leaving ranks should wait for ranks that take their places."""
    in_vain = any(failure.timed_out for failure in gang.join_failures)
    return len(gang.staying) < gang.limit and _warming(gang, coming) and not in_vain


def _warming(gang: RunningGang, coming: int) -> bool:
    return coming > 0 or any(process.ready_since is None for process in gang.pool)


def _take_in(gang: RunningGang, joining: Sequence[SlotAssignment]) -> GangChange | None:
    """The change that takes in as many of these ranks as make a world which the plan fits; None: there is none."""
    some = (_exchange(gang, joining[:count]) for count in range(len(joining), 0, -1))
    return next((change for change in some if change is not None), None)


def _exchange(gang: RunningGang, joining: Sequence[SlotAssignment]) -> GangChange | None:
    """The change by which joiners come in, and ranks on draining nodes leave, except as many as are needed for now: a joiner brings no
    state along, and might not make it."""
    held_back = gang.leaving[: _needed(gang, len(joining))]
    joining = tuple(joining)[: max(0, gang.ceiling - len(gang.staying) - len(held_back))]
    if not joining and len(held_back) == len(gang.leaving):
        return _preempt(gang) if gang.leaving else None
    stay = tuple(process for process in gang.members if not process.leaving or process in held_back)
    if gang.plan.misfit(len(stay) + len(joining)):
        return None if joining else _leave(gang)
    reasons = [f"rank {listed(joining)} is warm and takes a place"] if joining else []
    reasons += [f"the node of rank {listed(gang.leaving)} drains"] if gang.leaving else []
    return _change(gang, stay, joining, "; ".join(reasons))


def _leave(gang: RunningGang) -> GangChange:
    """The change by which ranks on draining nodes leave, and as many others as it takes to reach a size that the plan fits."""
    stay = kept(gang, gang.plan.largest(len(gang.staying), gang.least))
    return _change(gang, stay, (), f"the node of rank {listed(gang.leaving)} drains") if stay else _preempt(gang)


def _needed(gang: RunningGang, joining: int) -> int:
    """How many leaving ranks must stay: enough to go on without the joiners or, where there is no room for all, one that has the state.
    A sharded state is saved first, for the ranks that follow."""
    stay = len(gang.staying)
    if gang.plan.spreads_state:
        return max(gang.least - stay - joining, 0 if stay else 1)
    room = max(gang.ceiling - stay - joining, 0 if stay else 1)
    return min(max(0, gang.least - stay), room) if joining else max(0, gang.least - stay)


def _preempt(gang: RunningGang) -> Stop:
    """Restart the job elsewhere: no rank can take over, and too few would be left."""
    why = f"the node of rank {listed(gang.leaving)} drains and no other slot is free: its ranks save and exit, and the job waits for slots"
    return Stop(EndReason.PREEMPTED, why)


def _change(gang: RunningGang, stay: Sequence[SlotAssignment], joining: Sequence[SlotAssignment], why: str) -> ResizeGang:
    before, after = len(gang.members), len(stay) + len(joining)
    sizes = f"from {before} to {after}" if after != before else f"still {after}"
    members = Members(survivors=tuple(process.rank for process in stay), joining=tuple(process.rank for process in joining))
    return ResizeGang(f"{why}: {sizes} rank{'' if after == 1 else 's'}", members)
