"""Reads the jobs that run with fewer ranks than they are to have, for the autoscaler."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.scheduling import earlier_generations
from paceline.api.services.scheduling.job_snapshots import JobSnapshot, join_failures, load_smaller
from paceline.api.services.specs.job_views import gang_view
from paceline.api.services.specs.node_facets import folder_at
from paceline.api.services.specs.stored_specs import spec_of
from paceline.cluster.autoscaling.facts import GrowingGang
from paceline.cluster.autoscaling.growing import ScaleUpTries, growing_gang, restarting_gang
from paceline.cluster.policy.elastic import JoinFailure
from paceline.cluster.policy.script_worlds import RECENT_SECONDS
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import earlier_generations as generation_rows
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import ScriptWorkload

#: Codes of `pending` of a running job: it lacks room, or there is room that it will take later.
_LACKS_ROOM, _RESTS = "no_room_to_grow", "rests"


@dataclass
class ScaleUpMemory:
    """Moments of jobs that lack ranks, kept from look to look. A coordinator that takes over begins anew."""

    since: dict[str, datetime] = field(default_factory=dict)  # by job: it is known to lack ranks
    held: dict[str, int] = field(default_factory=dict)  # by job: slots that it held at the last look
    tries: ScaleUpTries = field(default_factory=ScaleUpTries)

    def note(self, held: Mapping[str, int], now: datetime) -> None:
        """Note the jobs that lack ranks now, each with the slots that it holds."""
        self.since = {job_id: self.since.get(job_id, now) for job_id in held}
        self.held = dict(held)
        self.tries.note_sizes(self.held, now)

    def note_tries(self, job_ids: Collection[str], now: datetime) -> None:
        """Note the jobs that nodes are launched for, or were idle for in vain."""
        for job_id in job_ids:
            self.tries.note_try(job_id, self.held.get(job_id, 0), now)


async def read_growing(session: AsyncSession, memory: ScaleUpMemory, nodes: Sequence[NodeRow], now: datetime) -> list[GrowingGang]:
    """Read what running jobs lack."""
    smaller = await load_smaller(session)
    lacking = [known for known in smaller if known.job.pending and known.can_change_members()]
    memory.note({known.job.id: _held(known) for known in lacking}, now)
    job_ids = [known.job.id for known in lacking]
    failures = await join_failures(session, job_ids, now) if job_ids else {}
    changes = await generation_rows.resized_since(session, job_ids, now - timedelta(seconds=RECENT_SECONDS)) if job_ids else {}
    by_id = {node.id: node for node in nodes}
    found = [_growing(known, memory, by_id, failures.get(known.job.id, ()), changes.get(known.job.id, 0)) for known in lacking]
    to_restart = [known for known in smaller if known.is_restarting]
    earlier = await earlier_generations.read(session, [known.job for known in to_restart], nodes, now)
    restarting = [
        restarting_gang(earlier.request_of(known.job), survives_interruption=survives_interruption(spec_of(known.job)))
        for known in to_restart
    ]
    return [*(each for each in found if each is not None), *restarting]


def _held(known: JobSnapshot) -> int:
    return sum(not rank.stopped for rank in (*known.view.ranks, *known.view.parked))


def _growing(
    known: JobSnapshot, memory: ScaleUpMemory, nodes: Mapping[str, NodeRow], failures: Sequence[JoinFailure], changes: int
) -> GrowingGang | None:
    job, code = known.job, (known.job.pending or {}).get("code")
    if code not in (_LACKS_ROOM, _RESTS):
        return None
    first = nodes.get(known.members[0].node_id)
    gang = gang_view(job, known.view, known.ranks, first.device if first else "cpu", failures, changes)
    return growing_gang(
        gang,
        job.priority,
        memory.since[job.id],
        folders={node.id: folder_at(node, gang.directory) for node in nodes.values()},
        survives_interruption=survives_interruption(spec_of(job)),
        rests=code == _RESTS,
        retry_at=memory.tries.retry_at(job.id),
    )


def survives_interruption(spec: JobSpec) -> bool:
    """Whether a job may run on nodes that can be taken away."""
    return not isinstance(spec.workload, ScriptWorkload) or derived.saves_when_stopped(spec)
