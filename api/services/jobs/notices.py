"""What neither state nor spec tells of jobs: a script that seems to hang, nodes that have fallen silent, how many ranks were left at the end, how
long slots were held, why no node is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.jobs import SilentNode
from paceline.api.schemas.stacks import HangNotice
from paceline.api.services.nodes import withheld
from paceline.api.services.specs.job_views import suspicion_of
from paceline.cluster.policy import quiet
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.states import TERMINAL_JOB_STATES, JobState
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories.jobs import UnreachableRank


@dataclass(frozen=True)
class Notices:
    hang: HangNotice | None = None
    silent_nodes: tuple[SilentNode, ...] = ()
    ended_with: int | None = None  # ranks of the last generation; None: it has not ended, or never ran
    ran_seconds: float = 0.0  # over all generations
    no_launch: str | None = None  # why the autoscaler launches no node for it


async def of_jobs(session: AsyncSession, jobs: Sequence[JobRow], now: datetime) -> dict[str, Notices]:
    """The notices by job, in a few queries however many jobs there are."""
    under_way = [job for job in jobs if job.generation and job.state not in TERMINAL_JOB_STATES]
    newest = await job_rows.generations(session, [(job.id, job.generation) for job in jobs if job.generation])
    generations = {row.job_id: row for row in newest.values()}
    running = {job.id for job in jobs if job.state is JobState.RUNNING}
    hangs = {row.job_id: _hang_notice(row, now) for row in generations.values() if row.ended_at is None and row.job_id in running}
    ended_with = {job.id: generations[job.id].world_size for job in jobs if job.state in TERMINAL_JOB_STATES and job.id in generations}
    unreachable = await job_rows.unreachable_ranks(session, [(job.id, job.generation) for job in under_way])
    silent = {job_id: _silent_nodes(list(ranks), now) for job_id, ranks in groupby(unreachable, lambda rank: rank.job_id)}
    no_launch = await withheld.reasons(session, [job.id for job in jobs if job.pending])
    return {
        job.id: Notices(
            hang=hangs.get(job.id),
            silent_nodes=silent.get(job.id, ()),
            ended_with=ended_with.get(job.id),
            ran_seconds=max(0.0, job.ran_seconds + _held_for(generations.get(job.id), now)),
            no_launch=no_launch.get(job.id),
        )
        for job in jobs
    }


def _held_for(newest: GenerationRow | None, now: datetime) -> float:
    """How long the newest generation has held its slots. 0 once it has ended: then the job's own sum has it."""
    if newest is None or newest.ended_at is not None:
        return 0.0
    return (now - newest.started_at).total_seconds()


def _hang_notice(generation: GenerationRow, now: datetime) -> HangNotice | None:
    suspicion = suspicion_of(generation)
    if suspicion is None or suspicion.told_at is None:
        return None
    return HangNotice(
        since=datetime.fromtimestamp(suspicion.since, UTC),
        told_at=datetime.fromtimestamp(suspicion.told_at, UTC),
        message=quiet.described(suspicion, now.timestamp()),
        differs=list(suspicion.ranks),
        ends=suspicion.ends,
    )


def _silent_nodes(ranks: Sequence[UnreachableRank], now: datetime) -> tuple[SilentNode, ...]:
    by_node = [list(group) for _, group in groupby(ranks, lambda rank: rank.node_id)]
    return tuple(_silent_node(group[0], [rank.rank for rank in group], now) for group in by_node)


def _silent_node(node: UnreachableRank, ranks: Sequence[int], now: datetime) -> SilentNode:
    age = quiet.duration(max(0.0, (now - node.heard_at).total_seconds()))
    which = f"{'rank' if len(ranks) == 1 else 'ranks'} {listed(ranks)}"
    message = f"node {node.node_name} ({which}) has not been heard of for {age}; if it stays silent, its ranks are given up"
    return SilentNode(node_id=node.node_id, node_name=node.node_name, since=node.heard_at, message=message)
