"""Decides how many nodes each pool should have: a pure function of facts and the time, which says why.

Pending jobs are taken by priority, then age. Each takes room on present nodes and on those under way first; for what does not fit, new nodes of the
best pool are asked for, as many as make the whole gang fit or, where the pool may not grow so far, its smallest size. Nothing is launched for a job
that will start sooner without: one that may start in a moment, or that gets the slots of running jobs by the time at which a node would be ready, as far
as the ends of these are known (`forecast`). Then come jobs that run with fewer ranks than they are to have: new nodes are asked for what they lack, or for as much
of it as there may be. One that has not grown although nodes came for it, or were idle, is left alone for a while, longer each time, so that a pool
does not launch and drain for nothing.

A node is drained once it has been idle for the pool's `idle_seconds` and no pending job can use it; one that a running job can grow onto has a moment
for that at least. A busy node never is: an interruption notice is the node's own affair (`cluster.agent.notices`).
One that stays lost counts for no minimum, and is drained so that another one can take its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from paceline.cluster.autoscaling.capacity import Capacity
from paceline.cluster.autoscaling.decisions import DrainNode, LaunchNodes, ScalingDecision, Withheld
from paceline.cluster.autoscaling.facts import GrowingGang, NodeFacts, PendingJob, PoolFacts, ScalingFacts
from paceline.cluster.autoscaling.forecast import ExpectedStart, expected_starts
from paceline.cluster.policy.requirements import CONTAINER_ENGINE
from paceline.monitoring.words import plural

#: A spot pool that lost a node is the last choice for so long.
AVOID_SECONDS = 1800.0
#: An idle node that a running job can grow onto is kept for so long at least, although its pool has a shorter `idle_seconds`.
OFFERED_SECONDS = 60.0
#: A node that is lost is replaced after so long: an agent that was only cut off for a moment is heard from again by then.
LOST_SECONDS = 300.0


@dataclass
class _Look:
    """One look at the cluster, and what it has led to so far."""

    facts: ScalingFacts
    now: datetime
    capacity: Capacity
    reasons: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by pool: why it is to grow

    @cached_property
    def starts(self) -> dict[str, ExpectedStart]:
        """Which jobs will get their slots without a further node. Only found out where a node may be launched: it takes passes over the queue."""
        return expected_starts(self.facts, self.now)

    def waited(self, job: PendingJob) -> float:
        return (self.now - job.request.queued_at).total_seconds()


def decide(facts: ScalingFacts, now: datetime) -> ScalingDecision:
    """Decide which nodes to launch and which to drain."""
    look = _Look(facts, now, Capacity.of(facts))
    for pool in facts.pools:
        _fill_up(look, pool)
    withheld = [refused for job in sorted(facts.pending, key=_turn) if (refused := _make_room(look, job))]
    grows_for = list[str]()
    for gang in sorted(facts.growing, key=lambda each: _turn(each.job)):
        before = look.capacity.new.total()
        refused = _grow(look, gang)
        withheld += [refused] if refused else []
        grows_for += [gang.job.request.job_id] if look.capacity.new.total() > before else []
    news = sorted(look.capacity.new.items())
    launches = tuple(LaunchNodes(name, count, "; ".join(look.reasons[name])) for name, count in news if count)
    drains = _superfluous(look)
    return ScalingDecision(launches, drains, tuple(withheld), tuple(grows_for), _declined(look, drains))


def _turn(job: PendingJob) -> tuple[int, datetime, str]:
    return -job.request.priority, job.request.queued_at, job.request.job_id


def _fill_up(look: _Look, pool: PoolFacts) -> None:
    """Bring the pool to its minimum, which counts even where its budget is spent."""
    alive = look.capacity.count[pool.name] - sum(node.pool == pool.name and _is_lost(node, look.now) for node in look.facts.nodes)
    lacking = min(pool.min_nodes - alive, look.capacity.places(pool))
    if lacking > 0 and not _rests(pool, look.now):
        look.capacity.launch(pool, lacking)
        look.reasons[pool.name].append(f"it is to have at least {plural(pool.min_nodes, 'node')}")


def _make_room(look: _Look, job: PendingJob) -> Withheld | None:
    """Take room for the pending job, with new nodes if need be. Returns why nothing is launched for it, or None."""
    request, capacity = job.request, look.capacity
    pools = [pool for pool in look.facts.pools if _obstacle(pool, job) is None]
    if not pools:
        return _why_no_pool(look.facts.pools, job)
    sizes = tuple(dict.fromkeys((request.blocks, request.fewest_blocks)))
    # Present nodes of any pool before those under way of another: these would be left idle, and drained, as soon as new ones are on their way.
    turns = ((blocks, pool, coming) for blocks in sizes for coming in (False, True) for pool in pools)
    for blocks, pool, coming in turns:
        if (used := capacity.take(request, blocks, pool, coming=coming)) is not None:
            capacity.needed |= used
            return None
    if look.waited(job) < look.facts.patience_seconds:
        capacity.reserve(request, pools)
        return Withheld(request.job_id, f"it waits for less than {look.facts.patience_seconds:g} s, and may start in a moment")
    refusals: dict[str, list[str]] = {pool.name: [] for pool in pools}
    scale_ups = (_best_scale_up(look, job, blocks, pools, refusals) for blocks in sizes)
    scale_up = next((each for each in scale_ups if each is not None), None)
    refused = _withheld(look, job, refusals) if scale_up is None else _sooner(look, job, scale_up)
    if scale_up is None or refused is not None:
        capacity.reserve(request, pools)
        return refused
    _launch(look, job, scale_up, f"waits for {plural(scale_up.blocks * request.slots_per_block, 'slot')}")
    return None


def _grow(look: _Look, gang: GrowingGang) -> Withheld | None:
    """Take room for the ranks that a running job lacks, with new nodes if need be. Returns why nothing is launched for it, or None."""
    job, capacity = gang.job, look.capacity
    pools = [pool for pool in look.facts.pools if _obstacle(pool, job) is None]
    if not pools:
        return None if gang.restarting else _why_no_pool(look.facts.pools, job)
    refusals: dict[str, list[str]] = {pool.name: [] for pool in pools}
    hindered = _why_not_now(look, gang)
    for blocks in gang.sizes:
        turns = ((pool, coming) for coming in (False, True) for pool in pools)
        for pool, coming in turns:
            used = capacity.take(job.request, blocks, pool, coming=coming and not gang.restarting, occupied=gang.occupied)
            if used is not None:
                _keep(look, gang, used)
                return None
        scale_up = None if hindered else _best_scale_up(look, job, blocks, pools, refusals, gang.occupied)
        if scale_up is not None:
            hindered = _sooner(look, job, scale_up)
            if hindered is None:
                _launch(look, job, scale_up, gang.why, gang.occupied)
                return None
    return _withheld(look, job, refusals) if hindered is None else hindered


def _keep(look: _Look, gang: GrowingGang, node_ids: Collection[str]) -> None:
    """Keep present nodes for a running job: until it has started again on them, or for the moment in which it may grow."""
    if gang.restarting:
        look.capacity.needed |= set(node_ids)
    else:
        for node_id in node_ids:
            look.capacity.offered[node_id].add(gang.job.request.job_id)


def _why_not_now(look: _Look, gang: GrowingGang) -> Withheld | None:
    """Why no node is launched for a running job, whatever pools there are; None: it may be."""
    job_id, soonest = gang.job.request.job_id, min((pool.launch_seconds for pool in look.facts.pools), default=0.0)
    if look.waited(gang.job) < look.facts.patience_seconds:
        return Withheld(job_id, f"it has lacked ranks for less than {look.facts.patience_seconds:g} s, and may get slots in a moment")
    if gang.restarting:
        return Withheld(job_id, "it starts again with more ranks")
    if gang.retry_at is not None and look.now < gang.retry_at:
        told = f"there were nodes for it and it has not grown; tried again at {gang.retry_at:%H:%M:%S} UTC"
        return Withheld(job_id, told, {pool.name: told for pool in look.facts.pools})
    if gang.rests_until is not None and look.now + timedelta(seconds=soonest) < gang.rests_until:
        told = f"it takes no more ranks before {gang.rests_until:%H:%M:%S} UTC"
        return Withheld(job_id, told, {pool.name: told for pool in look.facts.pools})
    return None


@dataclass(frozen=True)
class _ScaleUp:
    """So many nodes more for a pool, so that `blocks` of a job fit."""

    pool: PoolFacts
    count: int
    blocks: int


def _best_scale_up(
    look: _Look, job: PendingJob, blocks: int, pools: Sequence[PoolFacts], refusals: dict[str, list[str]], occupied: Collection[str] = ()
) -> _ScaleUp | None:
    """The best pool that may have the nodes which make `blocks` of the job fit; None: none may. Why not is added to `refusals`."""
    scale_ups = list[_ScaleUp]()
    for pool in pools:
        lacking = look.capacity.lacking(job.request, blocks, pool, occupied)
        if lacking is None:
            refusals[pool.name].append(pool.why_apart(job.request))
        else:
            scale_ups.append(_ScaleUp(pool, lacking, blocks))
    for scale_up in sorted(scale_ups, key=lambda each: _rank(each.pool, each.count, look.now)):
        refusal = _refusal(look.capacity, scale_up.pool, scale_up.count, look.now)
        if refusal is None:
            return scale_up
        refusals[scale_up.pool.name].append(refusal)
    return None


def _launch(look: _Look, job: PendingJob, scale_up: _ScaleUp, why: str, occupied: Collection[str] = ()) -> None:
    """Launch nodes for the job, and give it room on them."""
    pool, capacity = scale_up.pool, look.capacity
    capacity.launch(pool, scale_up.count)
    used = capacity.take(job.request, scale_up.blocks, pool, coming=True, occupied=occupied)
    capacity.needed |= used or set()
    look.reasons[pool.name].append(f"job {job.request.job_id} {why}")


def _sooner(look: _Look, job: PendingJob, scale_up: _ScaleUp) -> Withheld | None:
    """Why nothing is launched for a job that is expected to get its slots before a node of the pool would be ready; None: it is not."""
    job_id, takes = job.request.job_id, scale_up.pool.launch_seconds
    start = look.starts.get(job_id)
    if start is None or start.at > look.now + timedelta(seconds=takes):
        return None
    at = start.at + timedelta(seconds=-start.at.timestamp() % 10)  # not another text at every look
    cause = f"when job{'s' * (len(start.after) > 1)} {', '.join(start.after)} end{'s' * (len(start.after) == 1)}"
    where = cause if start.after else "on a node that is under way"
    told = f"slots for it are expected by {at:%H:%M:%S} UTC, {where}, and a new node of {scale_up.pool.name} takes {takes:.0f} s"
    return Withheld(job_id, told, {scale_up.pool.name: told})


def _withheld(look: _Look, job: PendingJob, refusals: dict[str, list[str]]) -> Withheld:
    by_pool = {name: "; ".join(dict.fromkeys(told)) for name, told in refusals.items()}
    unfit = {pool.name: why for pool in look.facts.pools if (why := _obstacle(pool, job)) is not None}
    return Withheld(job.request.job_id, "; ".join(by_pool.values()), by_pool | unfit)


def _obstacle(pool: PoolFacts, job: PendingJob) -> str | None:
    """Why the job can never run on nodes of this pool; None: it can."""
    if pool.slots < job.request.slots_per_block:
        return f"it needs {plural(job.request.slots_per_block, 'slot')} on one node, and those of {pool.name} have {pool.slots}"
    if pool.spot and not job.survives_interruption:
        return f"nodes of {pool.name} can be taken away, and it would lose its work"
    apart = job.folder is not None or (job.request.one_folder and pool.blocks_per_node(job.request) < job.request.fewest_blocks)
    if apart and (why := pool.why_apart(job.request)):
        return why
    requirements = job.request.requirements
    if pool.wrong_device and requirements.device not in (None, pool.device):
        return pool.wrong_device
    obstacle = requirements.obstacle(pool.device, pool.labels, pool.taints)
    return pool.no_engine or obstacle if obstacle == CONTAINER_ENGINE.obstacle else obstacle


def may_hold(pool: PoolFacts, job: PendingJob) -> bool:
    """Whether the pool would hold the job if it had as many nodes as it may, and nothing else ran there. What is against it at this moment, such as
    a budget that is used up, does not count."""
    request = job.request
    if _obstacle(pool, job) is not None:
        return False
    return pool.blocks_per_node(request) * pool.max_nodes >= request.fewest_blocks


def _why_no_pool(pools: Sequence[PoolFacts], job: PendingJob) -> Withheld:
    told = {pool.name: str(_obstacle(pool, job)) for pool in pools}
    listed = "; ".join(f"{name}: {why}" for name, why in told.items())
    return Withheld(job.request.job_id, f"no pool has nodes for it ({listed})" if told else "there is no pool that could grow", told)


def _rank(pool: PoolFacts, lacking: int, now: datetime) -> tuple[bool, float, float, str]:
    """The order of pools for a job: not one that has just lost a node, then the cheapest for the nodes it lacks, then the soonest."""
    shaky = pool.interrupted_at is not None and now - pool.interrupted_at < timedelta(seconds=AVOID_SECONDS)
    return shaky, lacking * pool.cost, pool.launch_seconds, pool.name


def _refusal(capacity: Capacity, pool: PoolFacts, count: int, now: datetime) -> str | None:
    """Why no `count` nodes of this pool are launched for a job; None: they may be."""
    places = capacity.places(pool)
    if count > places:
        return f"{pool.name} may have {plural(places, 'node')} more, and it lacks {count}"
    if pool.budget_is_spent:
        return f"{pool.name} has used its budget of {pool.budget_node_hours:g} node-hours"
    if _rests(pool, now):
        return f"{pool.name} failed of late, and is tried again at {pool.retry_at:%H:%M:%S} UTC"
    return None


def _rests(pool: PoolFacts, now: datetime) -> bool:
    return pool.retry_at is not None and now < pool.retry_at


def _superfluous(look: _Look) -> tuple[DrainNode, ...]:
    """Idle nodes to drain, the longest idle first; never below the minimum, and none that a job will use. Lost ones whatever the minimum is."""
    drains = []
    for pool in look.facts.pools:
        mine = [node for node in look.facts.nodes if node.pool == pool.name]
        staying = sum(not node.leaving and not _is_lost(node, look.now) for node in mine)
        over = staying + look.facts.launching.get(pool.name, 0) - pool.max_nodes
        for node in sorted(mine, key=_idle_order):
            why = _why_drain(pool, node, over, look.now)
            is_lost = _is_lost(node, look.now)
            is_kept = not is_lost and (staying <= pool.min_nodes or _has_a_use(look, node))
            if why is None or is_kept or look.capacity.new[pool.name]:
                continue
            drains.append(DrainNode(node.id, pool.name, why))
            if not is_lost:
                staying, over = staying - 1, over - 1
    return tuple(drains)


def _declined(look: _Look, drains: Collection[DrainNode]) -> tuple[str, ...]:
    """The running jobs that could have grown onto nodes which are drained, apart from those that no node is launched for at present anyway."""
    offered = {job_id for each in drains for job_id in look.capacity.offered.get(each.node_id, ())}
    resting = {gang.job.request.job_id for gang in look.facts.growing if gang.retry_at is not None and look.now < gang.retry_at}
    return tuple(sorted(offered - resting))


def _has_a_use(look: _Look, node: NodeFacts) -> bool:
    """Whether a pending job will use an idle node, or a running one has not yet had the time to grow onto it."""
    fresh = node.idle_since is not None and look.now - node.idle_since < timedelta(seconds=OFFERED_SECONDS)
    return node.id in look.capacity.needed or (fresh and node.id in look.capacity.offered)


def _is_lost(node: NodeFacts, now: datetime) -> bool:
    return node.lost_since is not None and now - node.lost_since >= timedelta(seconds=LOST_SECONDS)


def _idle_order(node: NodeFacts) -> tuple[bool, float, str]:
    return node.idle_since is None, node.idle_since.timestamp() if node.idle_since else 0.0, node.id


def _why_drain(pool: PoolFacts, node: NodeFacts, over: int, now: datetime) -> str | None:
    if node.idle_since is None or node.leaving:
        return None
    if _is_lost(node, now):
        return "its agent has not been heard from, and another node may take its place"
    idle = (now - node.idle_since).total_seconds()
    if over > 0:
        return f"{pool.name} may have {plural(pool.max_nodes, 'node')}, and it is idle"
    if pool.budget_is_spent:
        return f"it is idle, and {pool.name} has used its budget of {pool.budget_node_hours:g} node-hours"
    return f"no job has used it for {idle:.0f} s" if idle >= pool.idle_seconds else None
