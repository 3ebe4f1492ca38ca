"""Gives free slots to the jobs that wait for them, and tells each other job why it waits.

A queue that does not fit costs next to nothing: as long as neither the queue nor a node nor a slot has changed, the verdict on every
job stays the same, and only marks are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.services.lifecycle import gang_lifecycle, incidents, job_lifecycle
from paceline.api.services.lifecycle.gang_lifecycle import Start
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.scheduling import earlier_generations
from paceline.api.services.scheduling.assignments import restore_candidates
from paceline.api.services.scheduling.earlier_generations import EarlierGenerations
from paceline.api.services.scheduling.job_snapshots import JobSnapshot, free_slots, load_all_locked, load_recovering, subject_of
from paceline.api.services.specs.job_views import node_views
from paceline.api.services.specs.stored_specs import why_unreadable
from paceline.cluster.policy.placement import NodeView, Placement, PlacementReason, QueuedGang, Request, place
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows

#: Jobs of which one transaction notes why they wait.
BATCH = 200
#: Jobs that one step starts at most; it places the rest anew in the next, which comes at once.
MOST_STARTS = 256
_UNREADABLE = "unreadable_spec"
_WAY_OUT = "cancel it and submit it anew, or go back to the version that stored it"


@dataclass(frozen=True)
class QueueSituation:
    """All that the verdicts depend on: while it is equal, they are."""

    queue: str  # `job_rows.queue_mark`
    recovering: tuple[tuple[str, int], ...]  # id and version of each job
    nodes: tuple[NodeView, ...]  # with their free slots


@dataclass
class PlacementMemory:
    """Remembers the situation in which nothing could be placed, so that it is not looked at again until it changes."""

    services: Services
    _nothing_fits: QueueSituation | None = None

    async def step_once(self, now: datetime) -> None:
        looks = PhaseTurns(self.services, "see whether it waits for slots", now)
        async with self.services.control.read() as session:
            known = await load_recovering(session, self.services.uptime.since)
            self.services.troubles.forget_all_but(looks.task, {each.job.id for each in known})
            recovering = [each.job for each in known if await looks.look(each.subject, partial(_waits, each, now))]
            queue = await job_rows.queue_mark(session)
            if not queue and not recovering:
                return
            nodes = await node_rows.present(session)
            marks = tuple((job.id, job.version) for job in recovering)
            waiting = QueueSituation(queue, marks, tuple(node_views(nodes, await slot_rows.holders(session))))
            if waiting == self._nothing_fits:
                return
            jobs = [*await job_rows.queued(session), *recovering]
            earlier = await earlier_generations.read(session, jobs, nodes, now)
        placed_all = await self._place_all(jobs, earlier, waiting.nodes, {node.id: node for node in nodes}, now)
        self._nothing_fits = waiting if placed_all else None

    async def _place_all(
        self, jobs: Sequence[JobRow], earlier: EarlierGenerations, views: Sequence[NodeView], nodes: Mapping[str, NodeRow], now: datetime
    ) -> bool:
        """Start the placed jobs and give the others their reasons. Returns whether nothing could be placed and every reason is set, and no
        node is left out for a while: until something changes there is nothing more to do."""
        turns = PhaseTurns(self.services, "place it", now)
        self.services.troubles.forget_all_but(turns.task, {job.id for job in jobs})
        requests, unreadable, complete = await _requests(turns, jobs, earlier)
        verdicts = [*unreadable, *place(requests, views)]
        by_id = {job.id: job for job in jobs}
        placed = [verdict for verdict in verdicts if isinstance(verdict, Placement)]
        await turns.take_together(
            placed[:MOST_STARTS],
            lambda verdict: subject_of(by_id[verdict.job_id]),
            lambda group: start_placed(self.services, [(by_id[each.job_id], each) for each in group], nodes, now),
        )
        if len(placed) > MOST_STARTS:
            self.services.bus.nudge([bus.SCHEDULER])
        news = [
            (by_id[each.job_id], each.reason) for each in verdicts if isinstance(each, QueuedGang) and _is_news(by_id[each.job_id], each)
        ]
        for first in range(0, len(news), BATCH):
            await _set_pending_reasons(self.services, news[first : first + BATCH], now)
        return complete and not placed and not earlier.leaves_out


def _waits(known: JobSnapshot, now: datetime) -> bool:
    """Whether nothing is left to decide about a recovering job but where it goes on."""
    return known.wants_slots(now) and known.decide(now) is None


async def _requests(turns: PhaseTurns, jobs: Sequence[JobRow], earlier: EarlierGenerations) -> tuple[list[Request], list[QueuedGang], bool]:
    """(requests that can be placed, jobs that cannot be read, whether that is all of them)."""
    requests: list[Request] = []
    unreadable: list[QueuedGang] = []
    for job in jobs:
        if why := why_unreadable(job):
            text = f"its stored spec cannot be read by this version: {why}"
            unreadable.append(QueuedGang(job.id, PlacementReason(_UNREADABLE, text, next_step=_WAY_OUT)))
        elif request := await turns.look(subject_of(job), partial(earlier.request_of, job)):
            requests.append(request)
    return requests, unreadable, len(requests) + len(unreadable) == len(jobs)


def _is_news(job: JobRow, verdict: QueuedGang) -> bool:
    return (job.pending or {}).get("text") != verdict.reason.text


async def _set_pending_reasons(services: Services, news: Sequence[tuple[JobRow, PlacementReason]], now: datetime) -> None:
    """Set why jobs wait. Jobs that have changed since are left out: they are looked at again in the next step."""
    async with services.write() as session:
        waiting = await job_rows.unchanged(session, [(job.id, job.version) for job, _ in news])
        reasons = {job.id: reason for job, reason in news}
        for job in waiting:
            await job_lifecycle.set_pending(session, job, reasons[job.id], now)


async def start_placed(services: Services, placed: Sequence[tuple[JobRow, Placement]], nodes: Mapping[str, NodeRow], now: datetime) -> int:
    """Start placed jobs, but those of which something has changed meanwhile. Returns how many have started."""
    verdicts, versions = {job.id: verdict for job, verdict in placed}, {job.id: job.version for job, _ in placed}
    shares = [share for verdict in verdicts.values() for share in verdict.shares]
    async with services.write() as session:
        with session.no_autoflush:  # what is written for all of them goes in a few statements
            locked = await load_all_locked(session, verdicts.keys(), services.uptime.since, {share.node_id for share in shares})
            free = await free_slots(session, shares)
            # How the last ranks of a job ended may have become known since, and that it would meet the same again.
            same = [known.job for known in locked if known.job.version == versions[known.job.id] and known.decide(now) is None]
            starts = [await _start(session, job, verdicts[job.id]) for job in same if free.hold(verdicts[job.id].shares)]
            await gang_lifecycle.start_generations(session, starts, nodes, now)
            for start in starts:
                await incidents.note_restart(session, start.job, start.source.step if start.source else 0, now)
    return len(starts)


async def _start(session: AsyncSession, job: JobRow, verdict: Placement) -> Start:
    candidates = await restore_candidates(session, job, job.generation + 1)
    return Start(job, verdict, candidates[0] if candidates else None)
