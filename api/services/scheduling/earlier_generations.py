"""What earlier generations of a job say of where it should be placed next: on the device that it has run on, on the nodes that hold its newest
checkpoint or its own folder, and not on those that could not start it a short time ago."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.specs.job_views import had_process, on_same_device, report_of, request_of
from paceline.api.services.specs.node_facets import disk_of
from paceline.api.services.specs.stored_specs import checkpoint_folder, starts_in_own_folder
from paceline.cluster.policy.failures import UNREACHABLE, could_not_read, could_not_start
from paceline.cluster.policy.placement import Request
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import earlier_generations as rows
from paceline.db.repositories import jobs as job_rows

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

    def request_of(self, job: JobRow) -> Request:
        """The request of a job. Raises `UnreadableSpecError`."""
        request = on_same_device(request_of(job), self.devices.get(job.id))
        prefers, leaves_out = self.prefers.get(job.id, _NONE), self.leaves_out.get(job.id, _NONE)
        return replace(request, prefers=prefers, leaves_out=leaves_out, last_held=self.last_held.get(job.id, ()))


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
    return EarlierGenerations(await rows.devices(session, job_ids), prefers, _left_out(failed, prefers, disks), last_held)


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
