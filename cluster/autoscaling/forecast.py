"""Predicts which jobs will get their slots without a further node, and when. Pure.

Jobs that hold slots free them at their expected ends, nodes that are under way come, and what is free is given out as the scheduler does it: by
`policy.placement`, in the order of the queue, and what is left to running jobs that lack ranks. A job whose end is not known never ends here, and a
new one never comes. What a running job lacks is not predicted where some nodes are none for it. So slots come no sooner than predicted, unless a job takes longer than expected or a more urgent one is submitted: that shows in
the next look.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from paceline.cluster.autoscaling.facts import NodeFacts, PendingJob, PoolFacts, ScalingFacts
from paceline.cluster.policy.placement import NodeView, Placement, QueuedGang, Request, Room, place
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import EndReason, JobState

#: Slots come at so many moments at most, each when the last of some become free: every one of them is a pass over the queue.
MOST_MOMENTS = 8
#: Nothing is predicted for jobs further back in the queue.
MOST_JOBS = 200
#: How long a job takes from its last step, or from the moment at which it is told to stop, until its slots are free: it saves, and its processes end.
EXIT_SECONDS = 10.0
#: A job that is being stopped for one of these reasons frees its slots; after any other it may take them again.
_FOR_GOOD = frozenset({EndReason.COMPLETED, EndReason.CANCELLED, EndReason.PAUSED, EndReason.TIME_LIMIT})


def expected_end(view: JobView, last_step_at: datetime | None, now: datetime) -> datetime | None:
    """Return when a job that holds slots is expected to have freed them; None: that is not known, or should have happened by now.

    `last_step_at`: when it takes its last step at the pace of the newest ones; None: that is not known."""
    ends = list[datetime]()
    if view.state is JobState.STOPPING:
        ends += [view.state_since] if view.end_reason in _FOR_GOOD else []
    elif not view.generation_ended:
        ends += [last_step_at] if last_step_at is not None and view.state is JobState.RUNNING else []
        ends += [now + timedelta(seconds=view.time_limit - view.ran_seconds(now))] if view.time_limit is not None else []
    exit_time = timedelta(seconds=EXIT_SECONDS + (view.grace_seconds if view.is_script else 0.0))
    return min((end + exit_time for end in ends if end + exit_time > now), default=None)


@dataclass(frozen=True)
class ExpectedStart:
    """The moment at which a job is expected to get all the slots that it asks for."""

    at: datetime
    after: tuple[str, ...] = ()  # jobs whose slots it gets; none: it gets those of a node that is under way


def expected_starts(facts: ScalingFacts, now: datetime) -> dict[str, ExpectedStart]:
    """Return, by job, what is expected of pending jobs and of those that lack ranks within the time that a node of the slowest pool takes to be ready.
    A job that could start now is left out."""
    forecast, found = _Forecast.of(facts), dict[str, ExpectedStart]()
    forecast.give_out(now)
    for at, releases in _moments(facts, now):
        for release in releases:
            forecast.free(release)
        found |= forecast.give_out(at)
    return found


@dataclass(frozen=True)
class _Release:
    """Slots that become free on a node. `job_id`: the job that has held them; None: the node has just come."""

    at: datetime
    node: NodeView
    slots: int
    job_id: str | None = None


@dataclass
class _Forecast:
    """The cluster at one moment of the time to come."""

    nodes: dict[str, NodeView]
    free_slots: Counter[str]  # by node
    queue: list[Request]
    growing: list[Request]
    freed_by: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # jobs that have ended, by node

    @classmethod
    def of(cls, facts: ScalingFacts) -> _Forecast:
        growing = [gang.job for gang in facts.growing if not gang.restarting and not gang.occupied and gang.job.folder is None]
        return cls(
            {node.id: node_view(node) for node in facts.nodes},
            Counter({node.id: node.free for node in facts.nodes}),
            _requests(facts.pending),
            [replace(request, min_blocks=None) for request in _requests(growing)],
        )

    def free(self, release: _Release) -> None:
        self.nodes[release.node.id] = release.node
        self.free_slots[release.node.id] += release.slots
        if release.job_id is not None:
            self.freed_by[release.node.id].append(release.job_id)

    def give_out(self, at: datetime) -> dict[str, ExpectedStart]:
        """Give the free slots to those that wait. Returns the jobs that get all they ask for."""
        nodes = [replace(node, free=tuple(range(self.free_slots[node.id]))) for node in self.nodes.values()]
        room = Room(nodes, {request.requirements for request in (*self.queue, *self.growing)})
        verdicts = [*place(self.queue, nodes, room), *place(self.growing, nodes, room)]
        asked = {request.job_id: request.blocks * request.slots_per_block for request in (*self.queue, *self.growing)}
        placed = [each for each in verdicts if isinstance(each, Placement)]
        for share in (share for each in placed for share in each.shares):
            self.free_slots[share.node_id] -= len(share.slots)
        waiting = {each.job_id for each in verdicts if isinstance(each, QueuedGang)}
        self.queue = [request for request in self.queue if request.job_id in waiting]
        self.growing = [request for request in self.growing if request.job_id in waiting]
        return {each.job_id: ExpectedStart(at, self._freed_for(each)) for each in placed if each.slots == asked[each.job_id]}

    def _freed_for(self, placement: Placement) -> tuple[str, ...]:
        return tuple(dict.fromkeys(job_id for share in placement.shares for job_id in self.freed_by[share.node_id]))


def _requests(jobs: Sequence[PendingJob]) -> list[Request]:
    """What jobs ask for, in their order, without what they would take beyond that."""
    ordered = sorted((job.request for job in jobs), key=lambda each: (-each.priority, each.queued_at, each.job_id))
    return [replace(request, most_blocks=None) for request in ordered[:MOST_JOBS]]


def _moments(facts: ScalingFacts, now: datetime) -> Iterator[tuple[datetime, Sequence[_Release]]]:
    """What becomes free, in the order of time and in few parts, each with the moment of its last."""
    latest = now + timedelta(seconds=max((pool.launch_seconds for pool in facts.pools), default=0.0))
    nodes = {node.id: node_view(node) for node in facts.nodes}
    releases = [
        _Release(end.at, nodes[node_id], slots, end.job_id)
        for end in facts.expected_ends
        if now < end.at <= latest
        for node_id, slots in end.slots.items()
        if node_id in nodes
    ]
    releases += [each for pool in facts.pools for each in _coming(pool, facts.launching, now)]
    releases.sort(key=lambda each: each.at)
    size = -(-len(releases) // MOST_MOMENTS)
    for first in range(0, len(releases), max(1, size)):
        group = releases[first : first + size]
        yield group[-1].at, group


def _coming(pool: PoolFacts, launching: Mapping[str, int], now: datetime) -> Iterator[_Release]:
    """The nodes of the pool that are under way: each as if it were launched now."""
    ready_at = now + timedelta(seconds=pool.launch_seconds)
    for number in range(launching.get(pool.name, 0)):
        name = f"coming node {number} of {pool.name}"
        mounts = replace(pool.mounts, machine=name) if pool.mounts is not None else None
        folder = pool.folder_of_next(None, name)
        view = NodeView(name, name, pool.device, pool.slots, (), True, pool.labels, pool.taints, folder, mounts)
        yield _Release(ready_at, view, pool.slots)


def node_view(node: NodeFacts) -> NodeView:
    """A node as placement looks at it, with none of its slots free."""
    return NodeView(node.id, node.id, node.device, node.slots, (), node.is_usable, node.labels, node.taints, node.folder, node.mounts)
