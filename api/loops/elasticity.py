"""Lets gangs that run gain and give up ranks: `cluster.policy.gang_scaling` decides for all of them at once, one transaction each carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.services.lifecycle import gang_lifecycle, job_lifecycle
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.scheduling import earlier_generations
from paceline.api.services.scheduling.job_snapshots import JobSnapshot, join_failures, load, lock_ranks, still_free, subject_of
from paceline.api.services.specs.job_views import gang_view, node_views
from paceline.api.services.specs.stored_specs import readable_spec_of
from paceline.cluster.policy.decisions import GangChange, Members, ResizeGang, Stop
from paceline.cluster.policy.elastic import JoinFailure, RunningGang
from paceline.cluster.policy.gang_scaling import GangPlan, plan_gangs
from paceline.cluster.policy.placement import NodeView
from paceline.cluster.policy.script_worlds import RECENT_SECONDS
from paceline.cluster.states import RankState
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.repositories import earlier_generations as generation_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows


@dataclass(frozen=True)
class ElasticitySituation:
    """All that the plans depend on, except the time."""

    gangs: Sequence[RunningGang]
    lacks: Sequence[Any]  # what each gang is known to lack
    queue: str  # `job_rows.queue_mark`
    recovering: Sequence[tuple[str, int]]  # id and version of each job that waits for slots
    nodes: Sequence[NodeView]

    @property
    def is_timeless(self) -> bool:
        """Whether no gang waits for a rank to get warm, or for the next attempt."""
        return not any(gang.parked or gang.join_failures for gang in self.gangs)


@dataclass
class Elasticity:
    """Remembers where there was nothing to do, so that the whole queue is not placed again until something changes."""

    services: Services
    _at_rest: ElasticitySituation | None = None

    async def step_once(self, now: datetime, known: Sequence[JobSnapshot] | None = None) -> None:
        """Take one step. `known`: all jobs that may move by themselves, where they were read a moment ago."""
        turns = PhaseTurns(self.services, "let it grow or shrink", now)
        looks = PhaseTurns(self.services, "see whether it starts again", now)
        async with self.services.control.read() as session:
            known = await load(session, self.services.uptime.since) if known is None else known
            for phase in (turns, looks):
                self.services.troubles.forget_all_but(phase.task, {each.job.id for each in known})
            steady = [each for each in sorted(known, key=_turn) if await turns.look(each.subject, each.can_change_members)]
            if not steady:
                return
            present = await node_rows.present(session)
            nodes = node_views(present, await slot_rows.holders(session))
            gangs = await _gangs(session, turns, steady, nodes, now)
            recovering = [each.job for each in known if await turns.look(each.subject, partial(each.wants_slots, now))]
            lacks, marks = [each.job.pending for each in steady], [(job.id, job.version) for job in recovering]
            situation = ElasticitySituation(list(gangs.values()), lacks, await job_rows.queue_mark(session), marks, nodes)
            if situation == self._at_rest:
                return
            waiting = [job for job in [*await job_rows.queued(session), *recovering] if readable_spec_of(job)]
            earlier = await earlier_generations.read(session, waiting, present, now)
        requests = [request for job in waiting if (request := await turns.look(subject_of(job), partial(earlier.request_of, job)))]
        by_id = {each.job.id: each for each in steady}
        restarting = [each for each in known if await looks.look(each.subject, partial(_restarts, each))]
        plans = plan_gangs(situation.gangs, requests, nodes, now, restarting=bool(restarting))
        done = [
            await turns.take(by_id[plan.job_id].subject, partial(_carry_out, self.services, by_id[plan.job_id], plan, now))
            for plan in plans
        ]
        timeless = situation.is_timeless and not any(plan.rests for plan in plans)
        self._at_rest = situation if timeless and all(each is False for each in done) else None


async def _gangs(
    session: AsyncSession, turns: PhaseTurns, steady: Sequence[JobSnapshot], nodes: Sequence[NodeView], now: datetime
) -> dict[str, RunningGang]:
    devices = {node.id: node.device for node in nodes}
    job_ids = [each.job.id for each in steady]
    failures = await join_failures(session, job_ids, now)
    changes = await generation_rows.resized_since(session, job_ids, now - timedelta(seconds=RECENT_SECONDS))
    found = {each.job.id: await turns.look(each.subject, partial(_gang, each, devices, failures, changes)) for each in steady}
    return {job_id: gang for job_id, gang in found.items() if gang is not None}


def _restarts(known: JobSnapshot) -> bool:
    return known.is_restarting


def _turn(known: JobSnapshot) -> tuple[int, datetime, str]:
    return (-known.job.priority, known.job.created_at, known.job.id)


def _gang(
    known: JobSnapshot, devices: Mapping[str, str], failures: Mapping[str, Sequence[JoinFailure]], changes: Mapping[str, int]
) -> RunningGang:
    device = devices.get(known.members[0].node_id, "cpu")
    return gang_view(known.job, known.view, known.ranks, device, failures.get(known.job.id, ()), changes.get(known.job.id, 0))


async def _carry_out(services: Services, known: JobSnapshot, plan: GangPlan, now: datetime) -> bool:
    """Carry out a gang's plan. Returns whether there was anything to do."""
    pending = asdict(plan.lacks) if plan.lacks else None
    if plan.change is None and not plan.new_slots and not plan.released and not plan.given_up and pending == known.job.pending:
        return False
    async with services.write() as session:
        job = await job_rows.get_locked(session, known.job.id)
        if job is None or job.version != known.job.version:
            return True
        await lock_ranks(session, job)
        if plan.change is not None:
            await _change(session, job, plan.change, now)
            return True
        if plan.given_up:
            await gang_lifecycle.give_up_parked(session, job, plan.given_up, plan.why, now)
        if plan.released:
            await gang_lifecycle.release_parked(session, job, plan.released, now)
        # A slot may be free because a member has ended on it, with which the job ends, too.
        if plan.new_slots and await still_free(session, plan.new_slots) and await _still_run(session, job, known.members):
            await gang_lifecycle.park(session, job, plan.new_slots, plan.why, now)
        if pending != known.job.pending:
            await job_lifecycle.set_pending(session, job, plan.lacks, now)
    return True


async def _change(session: AsyncSession, job: JobRow, change: GangChange, now: datetime) -> None:
    match change:
        case Stop():
            await gang_lifecycle.apply(session, job, change, None, now)
            await gang_lifecycle.tell_nodes(session, job)
        case ResizeGang():
            if await _still_so(session, job, change.members):
                await gang_lifecycle.change_members(session, job, change, None, now)


async def _still_so(session: AsyncSession, job: JobRow, members: Members) -> bool:
    """Whether the snapshot still holds. A rank may have ended since, or lost a peer; then there is something else to decide first."""
    ranks = await _ranks(session, job)
    staying = all(_runs(ranks[rank]) for rank in members.survivors)
    return staying and all(ranks[rank].state is RankState.PARKED for rank in members.joining)


async def _still_run(session: AsyncSession, job: JobRow, members: Sequence[RankRow]) -> bool:
    ranks = await _ranks(session, job)
    return all(_runs(ranks[member.rank]) for member in members)


async def _ranks(session: AsyncSession, job: JobRow) -> dict[int, RankRow]:
    """The ranks of the job's generation as they are now, by number."""
    return {rank.rank: rank for rank in (await job_rows.ranks(session, [(job.id, job.generation)]))[job.id, job.generation]}


def _runs(rank: RankRow) -> bool:
    return rank.state is RankState.RUNNING and rank.failure is None
