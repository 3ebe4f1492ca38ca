"""Jobs as read at the start of a scheduler's pass, and whether a placement that was decided on them still holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.troubles import Subject
from paceline.api.services.specs.job_views import job_view, join_failures_of
from paceline.api.services.specs.stored_specs import why_unreadable
from paceline.cluster.policy.awaited_reports import is_awaited
from paceline.cluster.policy.decide import decide, wants_slots
from paceline.cluster.policy.decisions import Decision
from paceline.cluster.policy.elastic import FORGIVEN_SECONDS, JoinFailure, is_steady
from paceline.cluster.policy.placement import NodeShare
from paceline.cluster.policy.recovery import STEPLESS_GENERATIONS
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import EndReason, JobState, NodeState, RankState
from paceline.db.dialects import is_postgres
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows
from paceline.db.repositories.nodes import Reach


@dataclass(frozen=True)
class JobSnapshot:
    """An undecided job, with its ranks, as read at one moment."""

    job: JobRow
    generation: GenerationRow | None
    ranks: Sequence[RankRow]  # the parked ones too
    reach: Reach  # of its ranks' nodes
    left: GenerationRow | None = None  # by a gang that changes its members
    up_since: datetime | None = None  # see `JobView`
    before: Sequence[GenerationRow] = ()  # earlier generations, the newest first, where one of the ranks is in trouble

    @property
    def subject(self) -> Subject:
        return subject_of(self.job)

    @cached_property
    def view(self) -> JobView:
        return job_view(self.job, self.generation, self.ranks, self.reach, self.left, self.up_since, self.before)

    @property
    def members(self) -> list[RankRow]:
        return [rank for rank in self.ranks if not rank.parked]

    def decide(self, now: datetime) -> Decision | None:
        """The next decision about the job; None: nothing, or not yet."""
        decision = decide(self.view, now)
        if decision is None or is_awaited(self.view, decision, now):
            return None
        return decision if self.is_readable or _needs_no_spec(self.view, decision) else None

    def can_change_members(self) -> bool:
        """Whether ranks may come and go."""
        return self.is_readable and is_steady(self.view)

    @property
    def is_restarting(self) -> bool:
        """Whether the job is an elastic script whose ranks end, to start again with another world."""
        stops = self.job.state is JobState.STOPPING and self.job.end_reason is EndReason.RESIZED
        return stops and self.is_readable and self.view.is_elastic

    def wants_slots(self, now: datetime) -> bool:
        return self.is_readable and wants_slots(self.view, now)

    @cached_property
    def is_readable(self) -> bool:
        return why_unreadable(self.job) is None


def _needs_no_spec(view: JobView, decision: Decision) -> bool:
    """Whether a decision may be carried out for a job whose spec cannot be read: its user's requests, the good end of its ranks, and the
    end of what was stopping already. No fault of it is acted on: a version that reads the spec again finds the job as it was."""
    return view.state is JobState.STOPPING or decision.reason in (None, EndReason.CANCELLED, EndReason.PAUSED, EndReason.COMPLETED)


def subject_of(job: JobRow) -> Subject:
    return Subject("job", job.id, job.version)


async def load(session: AsyncSession, up_since: datetime | None) -> list[JobSnapshot]:
    """Load every job that may move by itself. Jobs that only wait for slots are not among them: see `loops/placing.py`."""
    return await _known(session, await job_rows.undecided(session), up_since)


async def load_among(session: AsyncSession, job_ids: Collection[str], up_since: datetime | None) -> list[JobSnapshot]:
    """Load the jobs among these that may move by themselves."""
    return await _known(session, await job_rows.undecided(session, job_ids), up_since)


async def load_recovering(session: AsyncSession, up_since: datetime | None) -> list[JobSnapshot]:
    """Load every job that is between two generations; some of them wait for slots."""
    return await _known(session, await job_rows.in_state(session, JobState.RECOVERING), up_since)


async def load_smaller(session: AsyncSession) -> list[JobSnapshot]:
    """Load the running jobs that lack ranks, and jobs that stop to start again with another world."""
    return await _known(session, await job_rows.smaller_than_wanted(session))


async def join_failures(session: AsyncSession, job_ids: Collection[str], now: datetime) -> Mapping[str, Sequence[JoinFailure]]:
    """The ranks of each job that were to join of late and did not make it."""
    joiners = await job_rows.joiners(session, job_ids, now - timedelta(seconds=FORGIVEN_SECONDS))
    return {job_id: join_failures_of([each for each in joiners if each[0].job_id == job_id], now) for job_id in job_ids}


async def load_quiet(session: AsyncSession) -> list[JobSnapshot]:
    """Running jobs that have fallen quiet in part, or seem to hang."""
    return await _known(session, await job_rows.quiet(session))


async def load_locked(session: AsyncSession, job_id: str) -> JobSnapshot | None:
    """Load one job as it stays until the commit: agents' reports of its ranks wait. None: it is gone. Changes of the ranks by this
    transaction do not show in the result."""
    job = await job_rows.get_locked(session, job_id)
    if job is None:
        return None
    await lock_ranks(session, job)
    return (await _known_apart(session, [job]))[0]


async def load_all_locked(
    session: AsyncSession, job_ids: Collection[str], up_since: datetime | None, nodes: Collection[str] = ()
) -> list[JobSnapshot]:
    """Load the jobs among these that are still there, as `load_locked` does: a handful of queries for any number. `nodes`: of which the
    caller will want the locks too, which are taken in one order with those of the ranks."""
    jobs = await job_rows.all_locked(session, job_ids)
    await lock_ranks(session, *jobs, nodes=nodes)
    return await _known_apart(session, jobs, up_since)


async def lock_ranks(session: AsyncSession, *jobs: JobRow, nodes: Collection[str] = ()) -> None:
    """Lock the ranks of jobs before they are read, and `nodes`: a concurrent report would be overwritten, or overwrite what follows from
    it. SQLite's one writer needs no lock."""
    if is_postgres(session):
        await node_rows.lock(session, {*nodes, *await job_rows.nodes_with_open_ranks(session, [job.id for job in jobs])})


async def _known_apart(session: AsyncSession, jobs: Sequence[JobRow], up_since: datetime | None = None) -> list[JobSnapshot]:
    """The snapshots of jobs, with ranks that this transaction's changes do not reach."""
    found = await _known(session, jobs, up_since)
    for rank in [rank for known in found for rank in known.ranks]:
        session.expunge(rank)
    return found


async def _known(session: AsyncSession, jobs: Sequence[JobRow], up_since: datetime | None = None) -> list[JobSnapshot]:
    keys = [(job.id, job.generation) for job in jobs if job.generation]
    left = {job.id: (job.id, job.generation - 1) for job in jobs if job.state is JobState.RESIZING}
    ranks = await job_rows.ranks(session, keys)
    before = {key[0]: _keys_before(*key) for key, gang in ranks.items() if any(map(_is_in_trouble, gang))}
    wanted = {*keys, *left.values(), *(key for earlier in before.values() for key in earlier)}
    generations = await job_rows.generations(session, list(wanted))
    node_ids = {rank.node_id for gang in ranks.values() for rank in gang}
    reach = await node_rows.reach(session, node_ids, up_since)
    if any(job.state is JobState.RECOVERING for job in jobs):
        reach = reach._replace(behind=await node_rows.behind(session))
    return [
        JobSnapshot(
            job,
            generations.get((job.id, job.generation)),
            ranks.get((job.id, job.generation), []),
            reach,
            generations.get(left[job.id]) if job.id in left else None,
            up_since,
            [generations[key] for key in before.get(job.id, ()) if key in generations],
        )
        for job in jobs
    ]


def _is_in_trouble(rank: RankRow) -> bool:
    return rank.failure is not None or rank.stall is not None or rank.state in (RankState.EXITED, RankState.LOST)


def _keys_before(job_id: str, generation: int) -> list[tuple[str, int]]:
    """The generations that tell whether another one would be futile, the newest first."""
    return [(job_id, number) for number in range(generation - 1, max(0, generation - STEPLESS_GENERATIONS), -1)]


async def still_free(session: AsyncSession, shares: Sequence[NodeShare]) -> bool:
    """Whether the slots are still free. A node may have been cordoned since the snapshot; and where this process stalled, another
    replica may have given the same slots. The locks on the nodes keep the answer true until the commit."""
    return not shares or (await free_slots(session, shares)).hold(shares)


@dataclass(frozen=True)
class FreeSlots:
    """The free slots of some nodes, as they stay until the commit of the transaction that has locked the nodes."""

    ready: Collection[str]  # nodes
    held: Collection[tuple[str, int]]  # (node, slot)

    def hold(self, shares: Sequence[NodeShare]) -> bool:
        """Whether all slots of these shares are free."""
        return all(share.node_id in self.ready and not any((share.node_id, slot) in self.held for slot in share.slots) for share in shares)


async def free_slots(session: AsyncSession, shares: Sequence[NodeShare]) -> FreeSlots:
    """The free slots of the nodes of these shares, which are locked from here on."""
    node_ids = {share.node_id for share in shares}
    ready = {node.id for node in await node_rows.all_locked(session, node_ids) if node.state is NodeState.READY}
    return FreeSlots(ready, await slot_rows.held_slots(session, node_ids))
