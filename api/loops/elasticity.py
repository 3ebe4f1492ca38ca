"""Lets gangs that run gain and give up ranks: `cluster.growth` decides for all of them at once, one transaction each carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.services import gang_lifecycle, job_lifecycle
from api.services.job_views import gang_view, mishaps_of, node_views, request_of
from api.services.known_jobs import Known, load, lock_ranks, still_free
from cluster.elastic import FORGIVEN_SECONDS, Gang, Mishap, is_steady
from cluster.growth import Step, next_steps
from cluster.states import JobState, RankState
from cluster.views import Decision
from db.models.jobs import JobRow
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows


async def step_once(services: Services, now: datetime) -> None:
    async with services.control.read() as session:
        known = await load(session)
        steady = {each.job.id: each for each in known if is_steady(each.view)}
        if not steady:
            return
        nodes = node_views(await node_rows.present(session), await job_rows.holders(session))
        mishaps = await _mishaps(session, list(steady), now)
    devices = {node.id: node.device for node in nodes}
    gangs = [_gang(each, devices, mishaps) for each in sorted(steady.values(), key=_turn)]
    waiting = [request_of(each.job) for each in known if each.wants_slots(now)]
    for step in next_steps(gangs, waiting, nodes, now):
        await _carry_out(services, steady[step.job_id], step, now)


def _turn(known: Known) -> tuple[int, datetime, str]:
    return (-known.job.priority, known.job.created_at, known.job.id)


def _gang(known: Known, devices: Mapping[str, str], mishaps: Mapping[str, Sequence[Mishap]]) -> Gang:
    device = devices.get(known.members[0].node_id, "cpu")
    return gang_view(known.job, known.view, known.ranks, device, mishaps.get(known.job.id, ()))


async def _mishaps(session: AsyncSession, job_ids: Sequence[str], now: datetime) -> Mapping[str, Sequence[Mishap]]:
    joiners = await job_rows.joiners(session, job_ids, now - timedelta(seconds=FORGIVEN_SECONDS))
    return {job_id: mishaps_of([each for each in joiners if each[0].job_id == job_id], now) for job_id in job_ids}


async def _carry_out(services: Services, known: Known, step: Step, now: datetime) -> None:
    pending = asdict(step.lacks) if step.lacks else None
    if step.change is None and not step.seats and not step.let_go and pending == known.job.pending:
        return
    async with services.write() as session:
        job = await job_rows.get_locked(session, known.job.id)
        if job is None or job.version != known.job.version:
            return
        await lock_ranks(session, job)
        if step.change is not None:
            await _change(session, job, step.change, now)
            return
        if step.let_go:
            await gang_lifecycle.let_go(session, job, step.let_go, now)
        if step.seats and await still_free(session, step.seats):
            await gang_lifecycle.park(session, job, step.seats, step.why, now)
        if pending != known.job.pending:
            await job_lifecycle.set_pending(session, job, step.lacks, now)


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
