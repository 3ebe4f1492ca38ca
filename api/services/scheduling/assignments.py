"""The desired assignments of a node, computed purely from rows: any replica, at any time, gives the same answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.checkpoints.checkpoints import store_options
from paceline.api.services.ingest.checkpoint_claims import is_older
from paceline.api.services.scheduling import gradients_requests, profiles, stacks
from paceline.api.services.specs.stored_specs import checkpoint_folder
from paceline.cluster.protocol import CheckpointToDelete, Desired, DesiredAssignment, GenerationKey
from paceline.cluster.states import CheckpointState, EndReason, JobState, RankState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.repositories import artifacts as artifact_rows
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import gradients_requests as gradients_request_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import stacks as stack_rows
from paceline.db.repositories.nodes import NodeAddress
from paceline.objects.location import is_url
from paceline.training.link import ProcessIdentity, RankPlace
from paceline.training.schema.script import grace_of

RankAction = Literal["run", "pause", "release", "stop"]


class NodePlacement(Protocol):
    """A node: its row, or the known facts without it."""

    @property
    def id(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def desired_revision(self) -> int: ...

    @property
    def leaving(self) -> bool: ...


@dataclass(frozen=True)
class RestorePlan:
    """Where a generation of new processes starts from."""

    folders: tuple[str, ...]  # of checkpoints, best candidate first
    required: bool  # there was something to continue from: starting over is out of the question


@dataclass(frozen=True)
class AssignedGang:
    """The part of an assignment that all nodes with ranks of one generation share."""

    job: JobRow
    generation: GenerationRow
    ranks: Sequence[RankRow]  # in rank order
    lead: NodeAddress
    restore: RestorePlan

    def local_world_size(self, node_id: str) -> int:
        return sum(rank.node_id == node_id and not rank.parked for rank in self.ranks)

    @cached_property
    def node_count(self) -> int:
        return len({rank.node_id for rank in self.ranks if not rank.parked})


class JobsWithRequests(NamedTuple):
    """The jobs of which something was ever asked while they run, answered or not: few have to be looked at further."""

    for_traces: Collection[str]
    for_gradients: Collection[str]


async def desired_of(session: AsyncSession, nodes: Sequence[NodePlacement]) -> dict[str, Desired]:
    """The desired state by node: every rank that it has not yet confirmed gone, and every checkpoint it should delete. As many queries
    for a hundred nodes as for one."""
    if not nodes:
        return {}
    node_ids = [node.id for node in nodes]
    ranks = [rank for rank in await job_rows.open_ranks_of_nodes(session, node_ids) if rank.state is not RankState.MOVED]
    gangs = await _gangs(session, sorted({(rank.job_id, rank.generation) for rank in ranks}))
    doomed = await checkpoint_rows.being_deleted_on(session, node_ids)
    stores = await _store_options(session, doomed)
    requests = JobsWithRequests(
        await artifact_rows.jobs_with_requests(session, {job_id for job_id, _ in gangs}),
        await gradients_request_rows.jobs_with_requests(session, {job_id for job_id, _ in gangs}),
    )
    asked = await stack_rows.unanswered(session, gangs.keys())
    held = defaultdict[str, dict[GenerationKey, list[RankRow]]](dict)
    for rank in ranks:
        held[rank.node_id].setdefault(GenerationKey(rank.job_id, rank.generation), []).append(rank)
    desired = dict[str, Desired]()
    for node in nodes:
        assignments = list[DesiredAssignment]()
        for key, mine in held[node.id].items():
            assignments += await _assignments(session, node, gangs[key], mine, requests, asked.get(key, ()))
        condemned = [each for each in doomed if each.node_id == node.id]
        desired[node.id] = Desired(
            revision=node.desired_revision,
            assignments=tuple(assignments),
            delete_checkpoints=tuple(
                CheckpointToDelete(id=each.id, directory=each.directory, options=stores.get(each.job_id, {})) for each in condemned
            ),
            leave=node.leaving,
        )
    return desired


async def _store_options(session: AsyncSession, doomed: Sequence[CheckpointRow]) -> dict[str, dict[str, str]]:
    """Where the object stores of these checkpoints are, by job, as far as the jobs' specs say."""
    job_ids = {each.job_id for each in doomed if is_url(each.directory)}
    jobs = await job_rows.by_id(session, job_ids) if job_ids else {}
    return {job_id: store_options(job) for job_id, job in jobs.items()}


def action_of(job: JobRow, generation: GenerationRow, rank: RankRow) -> RankAction:
    """The action for a rank. A parked rank has nothing to save, and one that was told to leave stays told."""
    if generation.generation != job.generation:
        return "release" if _is_left_at_boundary(job, generation) and not rank.parked else "stop"
    if generation.ended_at is not None or (rank.parked and rank.state is RankState.STOPPING):
        return "stop"
    if job.state is JobState.STOPPING:
        return "stop" if rank.parked else "pause"
    return "run"


def _is_left_at_boundary(job: JobRow, generation: GenerationRow) -> bool:
    """Whether the ranks are still at work, on their way to the step after which the next generation begins."""
    return job.state is JobState.RESIZING and generation.generation == job.generation - 1 and generation.end_reason is EndReason.RESIZED


async def restore_candidates(session: AsyncSession, job: JobRow, generation: int) -> list[CheckpointRow]:
    """The checkpoints that a generation may restore, best first: the newest of its job's own older generations, then what the job
    started from, then that one's older siblings.

    Newer generations' checkpoints are left out, so that every node of a gang gets the same list whenever it asks."""
    own = await checkpoint_rows.present_of_job(session, job.id) if generation > 1 else []
    return [*_usable(own, generation), *await _origins(session, job)]


def _usable(own: Sequence[CheckpointRow], generation: int) -> list[CheckpointRow]:
    return [each for each in own if each.state is CheckpointState.COMMITTED and each.generation < generation]


async def _origins(session: AsyncSession, job: JobRow) -> list[CheckpointRow]:
    """The checkpoint that a restored job was started from, unless it is damaged or was deleted, and what its job had saved before it."""
    chosen = await checkpoint_rows.get(session, job.restored_from) if job.restored_from else None
    if chosen is None:
        return []
    siblings = await checkpoint_rows.present_of_job(session, chosen.job_id)
    older = [each for each in siblings if each.state is CheckpointState.COMMITTED and is_older(each, chosen)]
    return [*([chosen] if chosen.state in (CheckpointState.COMMITTED, CheckpointState.SUPERSEDED) else []), *older]


async def _gangs(session: AsyncSession, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], AssignedGang]:
    if not keys:
        return {}
    jobs = await job_rows.by_id(session, {job_id for job_id, _ in keys})
    generations, ranks = await job_rows.generations(session, keys), await job_rows.ranks(session, keys)
    leads = await node_rows.addresses(session, {ranks[key][0].node_id for key in keys})
    present = await checkpoint_rows.present_of_jobs(session, list({job_id for job_id, number in keys if number > 1}))
    return {
        (job_id, number): AssignedGang(
            jobs[job_id],
            generations[job_id, number],
            ranks[job_id, number],
            leads[ranks[job_id, number][0].node_id],
            await _restore_plan(session, jobs[job_id], number, [each for each in present if each.job_id == job_id]),
        )
        for job_id, number in keys
    }


async def _assignments(
    session: AsyncSession,
    node: NodePlacement,
    gang: AssignedGang,
    mine: Sequence[RankRow],
    requests: JobsWithRequests,
    asked_for_stacks: Sequence[tuple[str, int]],
) -> list[DesiredAssignment]:
    """One assignment for each action of this generation's ranks. The spec goes along as it is stored: the agent reads it where it starts
    a rank, and living ranks have theirs."""
    job, number = gang.job, gang.generation.generation
    worlds = [(action_of(job, gang.generation, rank), _world(rank, node, gang)) for rank in mine]
    newest, numbers = number == job.generation, [rank.rank for rank in mine]
    profile = await profiles.wanted(session, job, numbers) if newest and job.id in requests.for_traces else None
    gradients = await gradients_requests.wanted(session, job, numbers) if newest and job.id in requests.for_gradients else None
    return [
        DesiredAssignment(
            job_id=job.id,
            generation=number,
            action=action,
            grace_seconds=grace_of(job.spec.document),
            spec=job.spec,
            worlds=tuple(world for what, world in worlds if what == action),
            profile=profile if action == "run" else None,
            gradients=gradients if action == "run" else None,
            stacks=stacks.wanted(asked_for_stacks, numbers) if action == "run" else None,
        )
        for action in dict.fromkeys(action for action, _ in worlds)
    ]


async def _restore_plan(session: AsyncSession, job: JobRow, generation: int, present: Sequence[CheckpointRow]) -> RestorePlan:
    """Where this generation starts from. `present`: the job's own checkpoints."""
    candidates = [*_usable(present, generation), *await _origins(session, job)]
    damaged = any(each.state is CheckpointState.DAMAGED and each.generation < generation for each in present)
    required = bool(candidates) or damaged or job.restored_from is not None
    return RestorePlan(tuple(each.directory for each in candidates), required)


def _world(rank: RankRow, node: NodePlacement, gang: AssignedGang) -> RankPlace:
    return RankPlace(
        job_id=rank.job_id,
        generation=rank.generation,
        rank=rank.rank,
        local_rank=rank.local_rank,
        local_world_size=gang.local_world_size(node.id),
        node_rank=rank.node_rank,
        world_size=gang.generation.world_size,
        node_count=gang.node_count,
        slot=rank.slot,
        device="cuda" if node.device == "cuda" else "cpu",
        store_host=gang.lead.host,
        store_port=gang.lead.store_port,
        store_token=gang.generation.store_token,
        checkpoint_directory=checkpoint_folder(gang.job) or "",
        restore_from=gang.restore.folders,
        restore_required=gang.restore.required,
        parked=rank.parked,
        restarts=gang.job.restarts,
        at_boundary=gang.generation.at_boundary,
        birth=None if rank.born_generation is None or rank.born_rank is None else ProcessIdentity(rank.born_generation, rank.born_rank),
    )
