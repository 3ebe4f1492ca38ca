"""Decides how many nodes each pool should have: a pure function of facts and the time, which says why.

Jobs are taken by priority, then age. Each takes room on present nodes and on those under way first; for what does not fit, new nodes of the best
pool are asked for, as many as make the whole gang fit or, where the pool may not grow so far, its smallest size. Nothing is launched for a job
that will start sooner without. A node is drained once it has been idle for the pool's `idle_seconds` and no pending job can use it; a busy node
never is: an interruption notice is the node's own affair (`cluster.agent.notices`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from paceline.cluster.autoscaling.capacity import Capacity
from paceline.cluster.autoscaling.decisions import DrainNode, LaunchNodes, ScalingDecision, Withheld
from paceline.cluster.autoscaling.facts import NodeFacts, PendingJob, PoolFacts, ScalingFacts
from paceline.monitoring.words import plural

#: A spot pool that lost a node is the last choice for so long.
AVOID_SECONDS = 1800.0


def decide(facts: ScalingFacts, now: datetime) -> ScalingDecision:
    """Decide which nodes to launch and which to drain."""
    capacity = Capacity.of(facts)
    reasons: dict[str, list[str]] = defaultdict(list)
    for pool in facts.pools:
        _fill_up(capacity, pool, reasons[pool.name], now)
    withheld = []
    for job in sorted(facts.pending, key=lambda each: (-each.request.priority, each.request.queued_at, each.request.job_id)):
        refused = _make_room(capacity, facts, job, reasons, now)
        withheld += [refused] if refused else []
    launches = tuple(LaunchNodes(name, count, "; ".join(reasons[name])) for name, count in sorted(capacity.new.items()) if count)
    return ScalingDecision(launches, _superfluous(capacity, facts, now), tuple(withheld))


def _fill_up(capacity: Capacity, pool: PoolFacts, reasons: list[str], now: datetime) -> None:
    """Bring the pool to its minimum, which counts even where its budget is spent."""
    lacking = pool.min_nodes - capacity.count[pool.name]
    if lacking > 0 and not _rests(pool, now):
        capacity.launch(pool, lacking)
        reasons.append(f"it is to have at least {plural(pool.min_nodes, 'node')}")


def _make_room(capacity: Capacity, facts: ScalingFacts, job: PendingJob, reasons: dict[str, list[str]], now: datetime) -> Withheld | None:
    """Take room for the job, with new nodes if need be. Returns why nothing is launched for it, or None."""
    request = job.request
    pools = [pool for pool in facts.pools if _obstacle(pool, job) is None]
    if not pools:
        return _why_no_pool(facts.pools, job)
    sizes = dict.fromkeys((request.blocks, request.fewest_blocks))
    # Present nodes of any pool before those under way of another: these would be left idle, and drained, as soon as new ones are on their way.
    if any(capacity.take(request, blocks, pool, coming=coming) for blocks in sizes for coming in (False, True) for pool in pools):
        return None
    if (now - request.queued_at).total_seconds() < facts.patience_seconds:
        return Withheld(request.job_id, f"it waits for less than {facts.patience_seconds:g} s, and may start in a moment")
    refusals: dict[str, list[str]] = {pool.name: [] for pool in pools}
    for blocks in sizes:
        for pool in sorted(pools, key=lambda each: _rank(capacity, job, blocks, each, now)):
            count = capacity.lacking(request, blocks, pool)
            refusal = _refusal(capacity, job, pool, count, now)
            if refusal is None:
                capacity.launch(pool, count)
                capacity.take(request, blocks, pool, coming=True)
                reasons[pool.name].append(f"job {request.job_id} waits for {plural(blocks * request.slots_per_block, 'slot')}")
                return None
            refusals[pool.name].append(refusal)
    by_pool = {name: "; ".join(dict.fromkeys(told)) for name, told in refusals.items()}
    unfit = {pool.name: why for pool in facts.pools if (why := _obstacle(pool, job)) is not None}
    return Withheld(request.job_id, "; ".join(by_pool.values()), by_pool | unfit)


def _obstacle(pool: PoolFacts, job: PendingJob) -> str | None:
    """Why the job can never run on nodes of this pool; None: it can."""
    if pool.slots < job.request.slots_per_block:
        return f"it needs {plural(job.request.slots_per_block, 'slot')} on one node, and those of {pool.name} have {pool.slots}"
    if pool.spot and not job.survives_interruption:
        return f"nodes of {pool.name} can be taken away, and it would lose its work"
    return job.request.requirements.obstacle(pool.device, pool.labels, pool.taints)


def _why_no_pool(pools: Sequence[PoolFacts], job: PendingJob) -> Withheld:
    told = {pool.name: str(_obstacle(pool, job)) for pool in pools}
    listed = "; ".join(f"{name}: {why}" for name, why in told.items())
    return Withheld(job.request.job_id, f"no pool has nodes for it ({listed})" if told else "there is no pool that could grow", told)


def _rank(capacity: Capacity, job: PendingJob, blocks: int, pool: PoolFacts, now: datetime) -> tuple[bool, float, float, str]:
    """The order of pools for a job: not one that has just lost a node, then the cheapest for the nodes it lacks, then the soonest."""
    shaky = pool.interrupted_at is not None and now - pool.interrupted_at < timedelta(seconds=AVOID_SECONDS)
    return shaky, capacity.lacking(job.request, blocks, pool) * pool.cost, pool.launch_seconds, pool.name


def _refusal(capacity: Capacity, job: PendingJob, pool: PoolFacts, count: int, now: datetime) -> str | None:
    """Why no `count` nodes of this pool are launched for the job; None: they may be."""
    places = capacity.places(pool)
    if count > places:
        return f"{pool.name} may have {plural(places, 'node')} more, and it lacks {count}"
    if pool.budget_is_spent:
        return f"{pool.name} has used its budget of {pool.budget_node_hours:g} node-hours"
    if _rests(pool, now):
        return f"{pool.name} failed of late, and is tried again at {pool.retry_at:%H:%M:%S} UTC"
    if job.predicted_wait is not None and job.predicted_wait <= pool.launch_seconds:
        return f"slots are free in {job.predicted_wait:.0f} s, sooner than a node of {pool.name} is ready ({pool.launch_seconds:.0f} s)"
    return None


def _rests(pool: PoolFacts, now: datetime) -> bool:
    return pool.retry_at is not None and now < pool.retry_at


def _superfluous(capacity: Capacity, facts: ScalingFacts, now: datetime) -> tuple[DrainNode, ...]:
    """Idle nodes to drain, the longest idle first; never below the minimum, and none that a pending job will use."""
    drains = []
    for pool in facts.pools:
        mine = [node for node in facts.nodes if node.pool == pool.name]
        staying = sum(not node.leaving for node in mine)
        over = staying + facts.launching.get(pool.name, 0) - pool.max_nodes
        for node in sorted(mine, key=_idle_order):
            why = _why_drain(pool, node, over, now)
            if why is None or staying <= pool.min_nodes or node.id in capacity.needed or capacity.new[pool.name]:
                continue
            drains.append(DrainNode(node.id, pool.name, why))
            staying, over = staying - 1, over - 1
    return tuple(drains)


def _idle_order(node: NodeFacts) -> tuple[bool, float, str]:
    return node.idle_since is None, node.idle_since.timestamp() if node.idle_since else 0.0, node.id


def _why_drain(pool: PoolFacts, node: NodeFacts, over: int, now: datetime) -> str | None:
    if node.idle_since is None or node.leaving:
        return None
    idle = (now - node.idle_since).total_seconds()
    if over > 0:
        return f"{pool.name} may have {plural(pool.max_nodes, 'node')}, and it is idle"
    if pool.budget_is_spent:
        return f"it is idle, and {pool.name} has used its budget of {pool.budget_node_hours:g} node-hours"
    return f"no job has used it for {idle:.0f} s" if idle >= pool.idle_seconds else None
