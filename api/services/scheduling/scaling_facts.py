"""Reads what the autoscaler decides from: pools that have `autoscale`, all nodes, launches under way, the jobs that wait, those that lack ranks, and
when those that run are expected to end."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.nodes import expected_nodes
from paceline.api.services.nodes.expected_nodes import ExpectedNode
from paceline.api.services.nodes.node_hours import NodeHours
from paceline.api.services.nodes.notices import state_on_return
from paceline.api.services.scheduling import earlier_generations, expected_ends
from paceline.api.services.scheduling.earlier_generations import EarlierGenerations
from paceline.api.services.scheduling.growing_jobs import ScaleUpMemory, read_growing, survives_interruption
from paceline.api.services.scheduling.job_snapshots import JobSnapshot, load_recovering
from paceline.api.services.specs.node_facets import disk_of, label_facets_of, mounts_of, taints_of
from paceline.api.services.specs.stored_specs import readable_spec_of
from paceline.cluster.autoscaling.decide import AVOID_SECONDS, may_hold
from paceline.cluster.autoscaling.facts import DEFAULT_LAUNCH_SECONDS, NodeFacts, PendingJob, PoolFacts, ScalingFacts
from paceline.cluster.policy.requirements import facets
from paceline.cluster.provisioners.settings import AutoscaleSettings
from paceline.cluster.states import LaunchState, NodeState
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.provisioning import LaunchRow, PoolRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import provisioning as rows
from paceline.db.repositories import slots as slot_rows

#: A pool rests so long after a launch that came to nothing, or that it refused.
REST = timedelta(minutes=5)
COMING = frozenset({LaunchState.REQUESTED, LaunchState.PENDING, LaunchState.RUNNING})
#: From when its agent is started until its provider has ended it, a node is paid for.
PAID = frozenset({LaunchState.RUNNING, LaunchState.JOINED, LaunchState.TERMINATING})


@dataclass
class ScalingMemory:
    """Moments that are kept from look to look. A coordinator that takes over begins anew: nodes stay a little longer for it."""

    idle_since: dict[str, datetime] = field(default_factory=dict)  # by node
    rests_until: dict[str, datetime] = field(default_factory=dict)  # by pool that has refused
    scale_ups: ScaleUpMemory = field(default_factory=ScaleUpMemory)

    def note_idle(self, nodes: Collection[str], now: datetime) -> None:
        """Note the nodes that are idle. A node for which that is known from later than `now` counts anew: the clock was set back."""
        self.idle_since = {node: min(self.idle_since.get(node, now), now) for node in nodes}


async def read_facts(session: AsyncSession, memory: ScalingMemory, up_since: datetime | None, now: datetime) -> ScalingFacts | None:
    """The facts of this moment; None where no pool that can be read is the autoscaler's. `up_since`: see `JobView`."""
    pools = await expected_nodes.readable_autoscaled(session)
    if not pools:
        return None
    launches = {row.name: await rows.open_of_pool(session, row.name) for row in pools}
    unwanted = {launch.node_id for group in launches.values() for launch in group if not launch.wanted}
    all_nodes = await node_rows.present(session)
    mine = [node for node in all_nodes if node.pool in launches]
    present = {node.id for node in mine}
    joining = [node for node in mine if node.state is NodeState.JOINING and node.id not in unwanted]
    nodes = [node for node in all_nodes if node not in joining]
    holders = await slot_rows.holders(session)
    held = Counter(holder.node_id for holder in holders)
    pending, growing = await _pending(session, up_since, all_nodes, now), await read_growing(session, memory.scale_ups, all_nodes, now)
    expected = {row.name: await expected_nodes.read(session, row, all_nodes) for row in pools}
    memory.note_idle([node.id for node in nodes if node.id in present and not held[node.id]], now)
    ends = await rows.newest_ends(session, now - timedelta(seconds=max(AVOID_SECONDS, REST.total_seconds())))
    under_way = Counter(str(node.pool) for node in joining)
    under_way.update(str(each.pool) for group in launches.values() for each in group if _is_coming(each))
    return ScalingFacts(
        pools=[_pool_facts(row, launches[row.name], mine, ends, memory, expected[row.name], now) for row in pools],
        nodes=[_node_facts(node, held[node.id], memory, unwanted) for node in nodes],
        pending=pending,
        growing=growing,
        expected_ends=await expected_ends.read(session, holders, now) if pending or growing else (),
        launching={name: under_way[name] for name in launches},
        ending={name: sum(not _is_coming(each) and each.node_id not in present for each in group) for name, group in launches.items()},
    )


def _is_coming(launch: LaunchRow) -> bool:
    return launch.wanted and launch.state in COMING


def _pool_facts(
    row: PoolRow,
    launches: Sequence[LaunchRow],
    nodes: Sequence[NodeRow],
    ends: Mapping[tuple[str, LaunchState], datetime],
    memory: ScalingMemory,
    expected: ExpectedNode,
    now: datetime,
) -> PoolFacts:
    settings = AutoscaleSettings.model_validate(row.autoscale)
    failed, rests_until = ends.get((row.name, LaunchState.FAILED)), memory.rests_until.get(row.name)
    rests = [until for until in (failed and failed + REST, rests_until) if until and until <= now + REST]  # beyond: the clock was set back
    return PoolFacts(
        name=row.name,
        slots=row.slots or 1,
        min_nodes=row.min_nodes,
        max_nodes=row.max_nodes,
        device=expected.device,
        labels=facets({"pool": row.name} | row.labels) | expected.tools,
        wrong_device=expected.wrong_device,
        no_engine=expected.no_engine,
        no_shared_folder=expected.no_shared_folder,
        mounts=expected.mounts,
        spot=row.spot,
        cost=settings.cost,
        launch_seconds=_launch_seconds(launches, nodes),
        idle_seconds=settings.idle_seconds,
        budget_node_hours=settings.budget_node_hours,
        spent_node_hours=NodeHours.stored(row.spent, now).hours,
        retry_at=max(rests, default=None),
        interrupted_at=ends.get((row.name, LaunchState.ENDED)),
    )


def _launch_seconds(launches: Sequence[LaunchRow], nodes: Sequence[NodeRow]) -> float:
    """How long present nodes took from the request until they had joined: the median."""
    joined = {node.id: node.joined_at for node in nodes}
    took = [(joined[each.node_id] - each.created_at).total_seconds() for each in launches if each.node_id in joined]
    return max(0.0, statistics.median(took)) if took else DEFAULT_LAUNCH_SECONDS


def _node_facts(node: NodeRow, held: int, memory: ScalingMemory, unwanted: set[str | None]) -> NodeFacts:
    leaving = node.leaving or node.state is NodeState.DRAINING or node.id in unwanted
    return NodeFacts(
        id=node.id,
        pool=node.pool,
        slots=node.slots,
        free=node.slots - held,
        idle_since=memory.idle_since.get(node.id),
        device=node.device,
        labels=label_facets_of(node),
        taints=facets(taints_of(node)),
        schedulable=node.state is NodeState.READY,
        leaving=leaving,
        folder=disk_of(node),
        mounts=mounts_of(node),
        lost_since=node.state_since if node.state is NodeState.LOST and state_on_return(node) is None else None,
    )


async def held_by_pools(session: AsyncSession, job_ids: Collection[str], now: datetime) -> set[str]:
    """Return the ids of these jobs that a pool would hold if it grew as far as it may."""
    pools = await expected_nodes.readable_autoscaled(session) if job_ids else []
    if not pools:
        return set()
    nodes, jobs = await node_rows.present(session), await job_rows.of_ids(session, job_ids)
    expected, earlier = await expected_nodes.of_autoscaled(session, nodes), await earlier_generations.read(session, jobs, nodes, now)
    facts = [_pool_facts(row, (), (), {}, ScalingMemory(), expected[row.name], now) for row in pools]
    found = [pending for job in jobs if (pending := _pending_job(job, earlier)) is not None]
    return {each.request.job_id for each in found if any(may_hold(pool, each) for pool in facts)}


async def _pending(session: AsyncSession, up_since: datetime | None, nodes: Sequence[NodeRow], now: datetime) -> list[PendingJob]:
    """Jobs that wait for slots, those that were stopped by a fault included."""
    known = await load_recovering(session, up_since)
    recovering = [each.job for each in known if _waits(each, now)]
    jobs = [*await job_rows.queued(session), *recovering]
    earlier = await earlier_generations.read(session, jobs, nodes, now)
    found = [_pending_job(job, earlier) for job in jobs]
    return [job for job in found if job is not None]


def _waits(known: JobSnapshot, now: datetime) -> bool:
    """Whether a job that was stopped by a fault waits for slots. One that raises waits for something else: the scheduler tells of it."""
    try:
        return known.wants_slots(now) and known.decide(now) is None
    except Exception:  # noqa: BLE001 - see above
        return False


def _pending_job(job: JobRow, earlier: EarlierGenerations) -> PendingJob | None:
    spec = readable_spec_of(job)
    if spec is None:
        return None  # it can never start: its own page says so
    return PendingJob(earlier.request_of(job), survives_interruption=survives_interruption(spec))
