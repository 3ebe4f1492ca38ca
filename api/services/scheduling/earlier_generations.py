"""What earlier generations of a job say of where it should be placed next: on the device that it has run on, on the nodes that hold its newest
checkpoint or its own folder, and not on those that could not start it a short time ago."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.specs.job_views import had_process, on_same_device, report_of, request_of
from paceline.api.services.specs.node_facets import disk_of, folder_at
from paceline.api.services.specs.stored_specs import checkpoint_folder, readable_spec_of, starts_in_own_folder
from paceline.cluster.policy.failures import UNREACHABLE, could_not_read, could_not_start
from paceline.cluster.policy.placement import Request
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import earlier_generations as rows
from paceline.db.repositories import jobs as job_rows
from paceline.training.spec import derived

#: How long a job is not placed on a node that could not start it.
LEFT_OUT = timedelta(minutes=10)
_NONE = frozenset[str]()


@dataclass(frozen=True)
class EarlierGenerations:
    """Devices and ids of nodes, by job."""

    devices: Mapping[str, str] = field(default_factory=dict)
    prefers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    leaves_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: With slots, of scripts that save in their own folder.
    last_held: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    #: Jobs whose folder is one on all of their nodes although it lies apart by their mounts: they have made steps on several of them together.
    see_one_folder: frozenset[str] = _NONE

    def request_of(self, job: JobRow) -> Request:
        """The request of a job. Raises `UnreadableSpecError`."""
        request = on_same_device(request_of(job), self.devices.get(job.id))
        prefers, leaves_out = self.prefers.get(job.id, _NONE), self.leaves_out.get(job.id, _NONE)
        one_folder = request.one_folder and job.id not in self.see_one_folder
        return replace(request, prefers=prefers, leaves_out=leaves_out, last_held=self.last_held.get(job.id, ()), one_folder=one_folder)


async def read(session: AsyncSession, jobs: Sequence[JobRow], nodes: Sequence[NodeRow], now: datetime) -> EarlierGenerations:
    """Read what the earlier generations of `jobs` say about `nodes`, which are all that are present."""
    jobs = [job for job in jobs if job.generation or job.restored_from]
    if not jobs:
        return EarlierGenerations()
    job_ids = {job.id for job in jobs}
    disks = {node.id: disk for node in nodes if (disk := disk_of(node))}
    prefers = await _holders(session, jobs, disks)
    failed = await rows.failed_ranks(session, job_ids, UNREACHABLE, now - LEFT_OUT)
    last_held = await rows.last_held(session, {job.id for job in jobs if starts_in_own_folder(job)})
    devices, left_out = await rows.devices(session, job_ids), _left_out(failed, prefers, disks)
    return EarlierGenerations(devices, prefers, left_out, last_held, await _see_one_folder(session, jobs, nodes))


async def _holders(session: AsyncSession, jobs: Sequence[JobRow], disks: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The nodes that hold the checkpoint which a job would restore first, where that lies in the default folder of a node. Of a folder that
    several machines may see nothing is known, and no node is better than another."""
    own = await rows.newest_checkpoints(session, {job.id for job in jobs})
    origins = await rows.checkpoints(session, {job.restored_from for job in jobs if job.restored_from and job.id not in own})
    owners = await job_rows.by_id(session, {each.job_id for each in origins.values()})
    owners |= {job.id: job for job in jobs}
    sharing = defaultdict[str, set[str]](set)
    for node_id, disk in disks.items():
        sharing[disk].add(node_id)
    holders = {disk: frozenset(node_ids) for disk, node_ids in sharing.items()}
    found = [(job.id, own.get(job.id) or origins.get(job.restored_from or "")) for job in jobs]
    return {
        job_id: holders[disks[checkpoint.node_id]]
        for job_id, checkpoint in found
        if checkpoint is not None and checkpoint.node_id in disks and checkpoint_folder(owners[checkpoint.job_id]) is None
    }


async def _see_one_folder(session: AsyncSession, jobs: Sequence[JobRow], nodes: Sequence[NodeRow]) -> frozenset[str]:
    """The jobs that have run on several nodes whose mounts say that the folder which the job names is not the same there: it is, behind a link for example."""
    specs = {job.id: spec for job in jobs if (spec := readable_spec_of(job)) is not None}
    named = {job_id: folder for job_id, spec in specs.items() if (folder := derived.named_folder(spec)) is not None}
    by_id, found = {node.id: node for node in nodes}, set[str]()
    for job_id, generations in (await rows.nodes_of_generations(session, named.keys())).items():
        for node_ids in generations:
            folders = {folder_at(by_id[node_id], named[job_id]) for node_id in node_ids if node_id in by_id} - {None}
            if len(folders) > 1:
                found.add(job_id)
    return frozenset(found)


def _left_out(failed: Sequence[RankRow], prefers: Mapping[str, frozenset[str]], disks: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The nodes that could not start a process, or on which it could not read its checkpoints: then neither can other nodes that certainly
    do not share the folder."""
    found = defaultdict[str, set[str]](set)
    for rank in failed:
        report, holders = report_of(rank), prefers.get(rank.job_id, _NONE)
        if report is not None and could_not_start(report, had_process=had_process(rank)):
            found[rank.job_id].add(rank.node_id)
        elif report is not None and could_not_read(report):
            found[rank.job_id] |= {rank.node_id, *(disks if holders else ())} - holders
    return {job_id: frozenset(node_ids) for job_id, node_ids in found.items()}
