"""Replays a trace of jobs on a pool that a policy makes larger and smaller: what that costs in slot-hours, and how long jobs wait.

The cluster is a model: a gang runs on any free slots of as few nodes as it takes, jobs start by priority and age, a smaller one may pass a blocked one,
a node is ready `launch_seconds` after it was asked for, and is paid for from then until it is gone. The policy is the real one.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from paceline.cluster.autoscaling.decide import decide
from paceline.cluster.autoscaling.decisions import ScalingDecision
from paceline.cluster.autoscaling.facts import ExpectedEnd, NodeFacts, PendingJob, PoolFacts, ScalingFacts
from paceline.cluster.autoscaling.trace import HOUR_SECONDS, TracedJob
from paceline.cluster.policy.placement import Request

START = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
LOOK_SECONDS = 10.0

ScalingPolicy = Callable[[ScalingFacts, datetime], ScalingDecision]


@dataclass
class ReplayedNode:
    """A node of the replay. `shares`: slots by job."""

    id: str
    slots: int
    launched: float
    ready: float
    idle_since: float
    shares: dict[str, int] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.slots - sum(self.shares.values())


@dataclass(frozen=True)
class ReplayResult:
    """The cost of a policy over a trace, and the waits of its jobs."""

    slot_hours: float  # that were paid for
    used_slot_hours: float  # in which a job ran
    waits: tuple[float, ...]  # seconds of each job
    launches: int
    most_nodes: int
    left: int  # jobs that never started

    @property
    def median_wait(self) -> float:
        return statistics.median(self.waits) if self.waits else 0.0

    @property
    def mean_wait(self) -> float:
        return statistics.fmean(self.waits) if self.waits else 0.0

    @property
    def p95_wait(self) -> float:
        ordered = sorted(self.waits)
        return ordered[int(0.95 * (len(ordered) - 1))] if ordered else 0.0


class Replay:
    """One pool and one policy over one trace. `known_ends`: the share of jobs whose end is known while they run."""

    def __init__(self, pool: PoolFacts, jobs: Sequence[TracedJob], policy: ScalingPolicy = decide, known_ends: float = 1.0) -> None:
        self._pool, self._policy = pool, policy
        order = sorted((job.id for job in jobs), key=lambda job_id: zlib.crc32(job_id.encode()))  # whatever their shapes are
        self._told = frozenset(order[: round(known_ends * len(order))])
        self._coming = sorted(jobs, key=lambda job: job.arrives)
        self._pending: list[TracedJob] = []
        self._ends: dict[str, float] = {}  # of running jobs
        self.nodes: dict[str, ReplayedNode] = {}
        self.decisions: list[tuple[float, ScalingDecision]] = []
        self._paid = self._used = 0.0
        self._waits = list[float]()
        self._launched = self._most = 0

    def run(self, look_seconds: float = LOOK_SECONDS) -> ReplayResult:
        """Replay the trace until its last job has ended, and every node beyond the minimum is gone."""
        now = 0.0
        while self._coming or self._pending or self._ends or len(self.nodes) > self._pool.min_nodes:
            self._advance(now)
            self._scale(now)
            self._most = max(self._most, len(self.nodes))
            if self._stuck():
                break
            now = self._next(now, look_seconds)
        for node in list(self.nodes.values()):
            self._remove(node, now)
        return ReplayResult(self._paid, self._used, tuple(self._waits), self._launched, self._most, len(self._pending))

    def _next(self, now: float, look_seconds: float) -> float:
        """When to look again: after `look_seconds` or, where no job waits, at the first look at which something can be new."""
        if self._pending:
            return now + look_seconds
        news = [*self._ends.values(), *(job.arrives for job in self._coming[:1])]
        news += [moment for node in self.nodes.values() for moment in (node.ready, node.idle_since + self._pool.idle_seconds)]
        later = min((moment for moment in news if moment > now), default=now)
        return max(now + look_seconds, math.ceil(later / look_seconds) * look_seconds)

    def _stuck(self) -> bool:
        """Whether what is left can never start: it is wider than the pool may become."""
        idle = not self._coming and not self._ends
        return idle and bool(self._pending) and all(job.slots > self._pool.slots * self._pool.max_nodes for job in self._pending)

    def _advance(self, now: float) -> None:
        for job_id in [job_id for job_id, end in self._ends.items() if end <= now]:
            self._end(job_id, self._ends.pop(job_id))
        while self._coming and self._coming[0].arrives <= now:
            self._pending.append(self._coming.pop(0))
        for job in sorted(self._pending, key=lambda each: (-each.priority, each.arrives)):
            if self._start(job, now):
                self._pending.remove(job)

    def _start(self, job: TracedJob, now: float) -> bool:
        ready = [node for node in self.nodes.values() if node.ready <= now and node.free]
        if sum(node.free for node in ready) < job.slots:
            return False
        left = job.slots
        for node in sorted(ready, key=lambda each: (each.free < left, each.free if each.free >= left else -each.free, each.id)):
            share = min(left, node.free)
            if share:
                node.shares[job.id] = share
                left -= share
        self._ends[job.id] = now + job.runs
        self._used += job.slots * job.runs / HOUR_SECONDS
        self._waits.append(max(0.0, now - job.arrives))
        return True

    def _end(self, job_id: str, at: float) -> None:
        for node in self.nodes.values():
            if node.shares.pop(job_id, None) is not None and not node.shares:
                node.idle_since = at

    def _scale(self, now: float) -> None:
        decision = self._policy(self.facts(now), START + timedelta(seconds=now))
        if decision.launches or decision.drains:
            self.decisions.append((now, decision))
        for launch in decision.launches:
            for _ in range(launch.count):
                self._launched += 1
                name, ready = f"node-{self._launched:05d}", now + self._pool.launch_seconds
                self.nodes[name] = ReplayedNode(name, self._pool.slots, now, ready, ready)
        for drain in decision.drains:
            self._remove(self.nodes[drain.node_id], now)

    def _remove(self, node: ReplayedNode, now: float) -> None:
        self._paid += node.slots * (now - node.launched) / HOUR_SECONDS
        del self.nodes[node.id]

    def facts(self, now: float) -> ScalingFacts:
        """Return the facts that the policy sees at this second."""
        here = [node for node in self.nodes.values() if node.ready <= now]
        spent = (self._paid + sum(node.slots * (now - node.launched) for node in self.nodes.values()) / HOUR_SECONDS) / self._pool.slots
        nodes = [
            NodeFacts(node.id, self._pool.name, node.slots, node.free, None if node.shares else START + timedelta(seconds=node.idle_since))
            for node in here
        ]
        pending = [PendingJob(Request(job.id, job.slots, 1, job.priority, START + timedelta(seconds=job.arrives))) for job in self._pending]
        pool = replace(self._pool, spent_node_hours=spent)
        held = defaultdict[str, dict[str, int]](dict)
        for node in here:
            for job_id in node.shares.keys() & self._told:
                held[job_id][node.id] = node.shares[job_id]
        ends = [ExpectedEnd(job_id, START + timedelta(seconds=self._ends[job_id]), slots) for job_id, slots in held.items()]
        return ScalingFacts([pool], nodes, pending, {self._pool.name: len(self.nodes) - len(here)}, expected_ends=ends)


def replay_always_on(pool: PoolFacts, jobs: Sequence[TracedJob]) -> ReplayResult:
    """Replay with all nodes there from before the first job, until after the last one."""
    return Replay(replace(pool, min_nodes=pool.max_nodes, launch_seconds=0.0), jobs).run()


def replay_oracle(pool: PoolFacts, jobs: Sequence[TracedJob]) -> ReplayResult:
    """Replay with nodes that are ready at once and gone as soon as they are idle: no policy that cannot see the future, and has to wait for its nodes,
    can have shorter waits for fewer slot-hours."""
    return Replay(replace(pool, min_nodes=0, launch_seconds=0.0, idle_seconds=0.0), jobs, _at_once).run()


def _at_once(facts: ScalingFacts, now: datetime) -> ScalingDecision:
    return decide(replace(facts, patience_seconds=0.0), now)
