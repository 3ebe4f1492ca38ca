"""Lets gangs that run gain and give up ranks: `cluster.growth` decides for all of them at once, one transaction each carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.loops.isolation import Turns
from api.services import gang_lifecycle, job_lifecycle
from api.services.job_views import gang_view, mishaps_of, node_views, request_of
from api.services.known_jobs import Known, load, lock_ranks, still_free, subject_of
from api.services.stored_specs import readable_spec_of
from cluster.elastic import FORGIVEN_SECONDS, Gang, Mishap, is_steady
from cluster.growth import Step, next_steps
from cluster.placement import NodeView
from cluster.states import JobState, RankState
from cluster.views import Decision
from db.models.jobs import JobRow
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows


@dataclass(frozen=True)
class Situation:
    """All that the next steps depend on, but for the time."""

    gangs: Sequence[Gang]
    lacks: Sequence[Any]  # what each gang is known to lack
    queue: str  # `job_rows.queue_mark`
    recovering: Sequence[tuple[str, int]]  # id and version of each job that waits for slots
    nodes: Sequence[NodeView]

    @property
    def is_timeless(self) -> bool:
        """Nobody waits for a rank to get warm, or for the next attempt."""
        return not any(gang.parked or gang.mishaps for gang in self.gangs)


@dataclass
class Elasticity:
    """Remembers where there was nothing to do, so that the whole queue is not placed again until something changes."""

    services: Services
    _at_rest: Situation | None = None

    async def step_once(self, now: datetime) -> None:
        turns = Turns(self.services, "let it grow or shrink", now)
        async with self.services.control.read() as session:
            known = await load(session)
            self.services.troubles.forget_all_but(turns.task, {each.job.id for each in known})
            steady = [each for each in sorted(known, key=_turn) if await turns.look(each.subject, partial(_is_steady, each))]
            if not steady:
                return
            nodes = node_views(await node_rows.present(session), await job_rows.holders(session))
            gangs = await _gangs(session, turns, steady, nodes, now)
            recovering = [each.job for each in known if await turns.look(each.subject, partial(each.wants_slots, now))]
            lacks, marks = [each.job.pending for each in steady], [(job.id, job.version) for job in recovering]
            situation = Situation(list(gangs.values()), lacks, await job_rows.queue_mark(session), marks, nodes)
            if situation == self._at_rest:
                return
            waiting = [job for job in [*await job_rows.queued(session), *recovering] if readable_spec_of(job)]
        requests = [request for job in waiting if (request := await turns.look(subject_of(job), partial(request_of, job)))]
        by_id = {each.job.id: each for each in steady}
        done = [
            await turns.take(by_id[step.job_id].subject, partial(_carry_out, self.services, by_id[step.job_id], step, now))
            for step in next_steps(situation.gangs, requests, nodes, now)
        ]
        self._at_rest = situation if situation.is_timeless and all(each is False for each in done) else None


def _is_steady(known: Known) -> bool:
    return known.is_readable and is_steady(known.view)


async def _gangs(session: AsyncSession, turns: Turns, steady: Sequence[Known], nodes: Sequence[NodeView], now: datetime) -> dict[str, Gang]:
    devices = {node.id: node.device for node in nodes}
    mishaps = await _mishaps(session, [each.job.id for each in steady], now)
    found = {each.job.id: await turns.look(each.subject, partial(_gang, each, devices, mishaps)) for each in steady}
    return {job_id: gang for job_id, gang in found.items() if gang is not None}


def _turn(known: Known) -> tuple[int, datetime, str]:
    return (-known.job.priority, known.job.created_at, known.job.id)


def _gang(known: Known, devices: Mapping[str, str], mishaps: Mapping[str, Sequence[Mishap]]) -> Gang:
    device = devices.get(known.members[0].node_id, "cpu")
    return gang_view(known.job, known.view, known.ranks, device, mishaps.get(known.job.id, ()))


async def _mishaps(session: AsyncSession, job_ids: Sequence[str], now: datetime) -> Mapping[str, Sequence[Mishap]]:
    joiners = await job_rows.joiners(session, job_ids, now - timedelta(seconds=FORGIVEN_SECONDS))
    return {job_id: mishaps_of([each for each in joiners if each[0].job_id == job_id], now) for job_id in job_ids}


async def _carry_out(services: Services, known: Known, step: Step, now: datetime) -> bool:
    """Whether there was anything to do."""
    pending = asdict(step.lacks) if step.lacks else None
    if step.change is None and not step.seats and not step.let_go and pending == known.job.pending:
        return False
    async with services.write() as session:
        job = await job_rows.get_locked(session, known.job.id)
        if job is None or job.version != known.job.version:
            return True
        await lock_ranks(session, job)
        if step.change is not None:
            await _change(session, job, step.change, now)
            return True
        if step.let_go:
            await gang_lifecycle.let_go(session, job, step.let_go, now)
        if step.seats and await still_free(session, step.seats):
            await gang_lifecycle.park(session, job, step.seats, step.why, now)
        if pending != known.job.pending:
            await job_lifecycle.set_pending(session, job, step.lacks, now)
    return True


async def _change(session: AsyncSession, job: JobRow, change: Decision, now: datetime) -> None:
    if change.to is JobState.STOPPING:
        await gang_lifecycle.apply(session, job, change, None, now)
    elif await _still_so(session, job, change):
        await gang_lifecycle.change_members(session, job, change, None, now)


async def _still_so(session: AsyncSession, job: JobRow, change: Decision) -> bool:
    """A rank may have ended since the snapshot, or lost a peer; then there is something else to decide first."""
    ranks = {rank.rank: rank for rank in (await job_rows.ranks(session, [(job.id, job.generation)]))[job.id, job.generation]}
    staying = all(ranks[rank].state is RankState.RUNNING and ranks[rank].failure is None for rank in change.survivors)
    return staying and all(ranks[rank].state is RankState.PARKED for rank in change.joining)
