"""What a node should be doing, computed purely from rows: any replica, at any time, gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncSession

from api.services import profiles
from cluster.protocol import CheckpointToDelete, Desired, DesiredAssignment
from cluster.states import CheckpointState, EndReason, JobState, RankState
from db.models.checkpoints import CheckpointRow
from db.models.jobs import GenerationRow, JobRow, RankRow
from db.models.nodes import NodeRow
from db.repositories import checkpoints as checkpoint_rows
from db.repositories import jobs as job_rows
from training.link import Birth, World
from training.spec.job import JobSpec

Action = Literal["run", "pause", "release", "stop"]
GRACE_SECONDS = 3.0


async def desired_for(session: AsyncSession, node: NodeRow) -> Desired:
    """Every rank that the node has not yet confirmed gone, and every checkpoint it should delete."""
    ranks = [rank for rank in await job_rows.open_ranks_of_node(session, node.id) if rank.state is not RankState.MOVED]
    gangs = groupby(ranks, key=lambda rank: (rank.job_id, rank.generation))
    assignments = [each for (job_id, number), mine in gangs for each in await _assignments(session, node, job_id, number, list(mine))]
    doomed = await checkpoint_rows.being_deleted_on(session, node.id)
    return Desired(
        revision=node.desired_revision,
        assignments=tuple(assignments),
        delete_checkpoints=tuple(CheckpointToDelete(id=each.id, directory=each.directory) for each in doomed),
        leave=node.leaving,
    )


def action_of(job: JobRow, generation: GenerationRow, rank: RankRow) -> Action:
    """A parked rank has nothing to save, and one that was told to go stays told."""
    if generation.generation != job.generation:
        return "release" if _is_left_in_good_order(job, generation) and not rank.parked else "stop"
    if generation.ended_at is not None or (rank.parked and rank.state is RankState.STOPPING):
        return "stop"
    if job.state is JobState.STOPPING:
        return "stop" if rank.parked else "pause"
    return "run"


def _is_left_in_good_order(job: JobRow, generation: GenerationRow) -> bool:
    """Its ranks are at work still, on their way to the step after which the next generation begins."""
    return job.state is JobState.RESIZING and generation.generation == job.generation - 1 and generation.end_reason is EndReason.RESIZED


async def restore_candidates(session: AsyncSession, job: JobRow, generation: int) -> list[CheckpointRow]:
    """What a generation may restore, best first: the newest of its job's own older generations, then what the job started from,
    then that one's older siblings.

    Newer generations' checkpoints are left out, so that every node of a gang gets the same list whenever it asks.
    """
    own = await checkpoint_rows.present_of_job(session, job.id)
    usable = [each for each in own if each.state is CheckpointState.COMMITTED and each.generation < generation]
    return [*usable, *await _origins(session, job)]


async def _origins(session: AsyncSession, job: JobRow) -> list[CheckpointRow]:
    """The checkpoint that a restored job was started from, unless it is damaged, and what its job had saved before it."""
    chosen = await checkpoint_rows.get(session, job.restored_from) if job.restored_from else None
    if chosen is None:
        return []
    siblings = await checkpoint_rows.present_of_job(session, chosen.job_id)
    older = [each for each in siblings if each.state is CheckpointState.COMMITTED and _is_older(each, chosen)]
    return [*([] if chosen.state is CheckpointState.DAMAGED else [chosen]), *older]


def _is_older(one: CheckpointRow, other: CheckpointRow) -> bool:
    """Saved before `other`: a later generation may pass the same steps again, with another outcome."""
    return one.id != other.id and one.step <= other.step and one.generation <= other.generation


async def _assignments(session: AsyncSession, node: NodeRow, job_id: str, number: int, mine: Sequence[RankRow]) -> list[DesiredAssignment]:
    """One for each thing that ranks of this generation are to do."""
    job = await job_rows.get(session, job_id)
    generation = await job_rows.generation(session, job_id, number)
    assert job is not None, f"rank of unknown job {job_id}"
    assert generation is not None, f"rank of unknown generation {number} of job {job_id}"
    spec = JobSpec.model_validate(job.spec)
    gang = await job_rows.ranks_with_nodes(session, job_id, number)
    restore = await _restore(session, job, number)
    worlds = [(action_of(job, generation, rank), _world(rank, spec, generation, node, gang, restore)) for rank in mine]
    profile = await profiles.wanted(session, job, [rank.rank for rank in mine]) if number == job.generation else None
    return [
        DesiredAssignment(
            job_id=job_id,
            generation=number,
            action=action,
            grace_seconds=GRACE_SECONDS,
            spec=job.spec,
            worlds=tuple(world for what, world in worlds if what == action),
            profile=profile if action == "run" else None,
        )
        for action in dict.fromkeys(action for action, _ in worlds)
    ]


async def _restore(session: AsyncSession, job: JobRow, generation: int) -> tuple[tuple[str, ...], bool]:
    """(folders to try, whether starting over is out of the question because there was something to continue from)."""
    candidates = await restore_candidates(session, job, generation)
    damaged = any(
        each.state is CheckpointState.DAMAGED and each.generation < generation
        for each in await checkpoint_rows.present_of_job(session, job.id)
    )
    return tuple(each.directory for each in candidates), bool(candidates) or damaged or job.restored_from is not None


def _world(
    rank: RankRow,
    spec: JobSpec,
    generation: GenerationRow,
    node: NodeRow,
    gang: Sequence[tuple[RankRow, NodeRow]],
    restore: tuple[tuple[str, ...], bool],
) -> World:
    root, lead = spec.checkpoint.directory, gang[0][1]
    return World(
        job_id=rank.job_id,
        generation=rank.generation,
        rank=rank.rank,
        local_rank=rank.local_rank,
        local_world_size=sum(each.id == node.id and not other.parked for other, each in gang),
        node_rank=rank.node_rank,
        world_size=generation.world_size,
        slot=rank.slot,
        device="cuda" if node.device == "cuda" else "cpu",
        store_host=lead.address,
        store_port=lead.store_port,
        store_token=generation.store_token,
        checkpoint_directory=f"{root.rstrip('/')}/{rank.job_id}" if root else "",
        restore_from=restore[0],
        restore_required=restore[1],
        parked=rank.parked,
        at_boundary=generation.at_boundary,
        birth=None if rank.born_generation is None or rank.born_rank is None else Birth(rank.born_generation, rank.born_rank),
    )
