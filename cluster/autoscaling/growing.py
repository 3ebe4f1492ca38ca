"""What a running gang lacks, as the autoscaler asks for it: blocks of slots beside those that it has, and the numbers of them that it could use. Pure.

It mirrors `cluster.policy.gang_scaling`, which will give the gang the slots: a node that came for a gang and that it cannot use would be drained again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from paceline.cluster.autoscaling.facts import GrowingGang, PendingJob
from paceline.cluster.policy.elastic import RunningGang, SlotAssignment
from paceline.cluster.policy.elastic import retry_at as joins_at
from paceline.cluster.policy.placement import Request
from paceline.monitoring.backoff import doubled

#: A job that has not grown although there were nodes for it is left alone for so long, doubled each time, at most LONGEST.
RETRY_SECONDS = 600.0
LONGEST_RETRY_SECONDS = 6 * 3600.0


@dataclass(frozen=True)
class ScaleUpTry:
    """There were nodes for a job while it held `slots`, launched or idle ones, for the `tries`-th time without it growing."""

    slots: int
    tries: int
    at: datetime

    @property
    def retry_at(self) -> datetime:
        """The moment from which nodes may be launched for the job again, if it has not grown by then."""
        return self.at + timedelta(seconds=doubled(RETRY_SECONDS, LONGEST_RETRY_SECONDS, self.tries))


@dataclass
class ScaleUpTries:
    """Remembers the nodes for running jobs that did not make them larger, so that a pool does not launch and drain for nothing."""

    by_job: dict[str, ScaleUpTry] = field(default_factory=dict)

    def note_try(self, job_id: str, slots: int, now: datetime) -> None:
        """Note that nodes are launched for a job that holds so many slots, or were idle for it in vain."""
        before = self.by_job.get(job_id)
        self.by_job[job_id] = ScaleUpTry(slots, before.tries + 1 if before is not None else 1, now)

    def note_sizes(self, held: dict[str, int], now: datetime) -> None:
        """Forget the tries that have helped. `held`: slots of each job that still lacks some; what is long ago is forgotten as well."""
        forgotten = timedelta(seconds=2 * LONGEST_RETRY_SECONDS)
        kept = {job_id: each for job_id, each in self.by_job.items() if now - each.at < forgotten}
        self.by_job = {job_id: each for job_id, each in kept.items() if job_id in held and held[job_id] <= each.slots}

    def retry_at(self, job_id: str) -> datetime | None:
        """The moment from which nodes may be launched for the job again; None: at once."""
        found = self.by_job.get(job_id)
        return found.retry_at if found is not None else None


def growing_gang(
    gang: RunningGang,
    priority: int,
    since: datetime,
    *,
    folders: Mapping[str, str | None],
    survives_interruption: bool,
    rests: bool = False,
    retry_at: datetime | None = None,
) -> GrowingGang | None:
    """The gang with what it lacks; None: no further block would be of use to it. `since`: it has lacked slots since then; `folders`: that for
    its checkpoints on each present node, as of `policy.folders.folder_of`; `rests`: an elastic script
    that will start again on more of the present nodes; `retry_at`: no node is launched for it before."""
    sizes = further_blocks(gang)
    if not sizes:
        return None
    spread = gang.most_per_node is not None
    requirements = replace(gang.requirements, device=gang.device)
    request = Request(gang.job_id, sizes[0], gang.block, priority, since, sizes[-1], spread=spread, requirements=requirements)
    request = replace(request, one_folder=gang.one_folder, directory=gang.directory)
    mine = {folders.get(node_id) for node_id in _processes(gang) if gang.one_folder} - {None}
    if len(mine) > 1:  # it lies apart by its mounts, and is one folder after all, since the gang runs there
        mine, request = set[str | None](), replace(request, one_folder=False)
    elsewhere = {node_id for node_id, folder in folders.items() if mine and folder not in (None, *mine)}
    until = gang.rests_until if gang.request is not None else joins_at(gang.join_failures)
    return GrowingGang(
        PendingJob(request, survives_interruption, next(iter(mine), None)),
        sizes,
        f"runs with {len(gang.staying)} of {gang.target} ranks",
        occupied=frozenset(elsewhere.union(_processes(gang) if spread else ())),
        rests_until=until,
        retry_at=retry_at,
        restarting=rests,
    )


def restarting_gang(request: Request, *, survives_interruption: bool) -> GrowingGang:
    """An elastic script whose ranks end, to start again on more nodes: those that are idle meanwhile are kept for it."""
    sizes = tuple(range(request.blocks, 0, -1))
    return GrowingGang(PendingJob(request, survives_interruption=survives_interruption), sizes, "starts again", restarting=True)


def further_blocks(gang: RunningGang) -> tuple[int, ...]:
    """The numbers of whole blocks with which the gang would run, up to its target: the largest first."""
    if gang.request is not None:
        held = len(gang.members) // gang.block
        wanted = range(gang.request.blocks - held, 0, -1)
        return tuple(count for count in wanted if gang.plan.misfit((held + count) * gang.block) is None)
    have = len(gang.staying) + len(gang.pool)
    begun = sum(-(-count // gang.block) for count in _processes(gang).values())
    lacking = gang.target - have
    most = min(-(-lacking // gang.block), -(-(_count(gang) + lacking) // gang.block) - begun)
    return tuple(count for count in range(most, 0, -1) if gang.plan.misfit(min(gang.target, have + count * gang.block)) is None)


def _processes(gang: RunningGang) -> Counter[str]:
    """How many of the gang's processes each node has."""
    processes: tuple[SlotAssignment, ...] = (*gang.members, *gang.parked)
    return Counter(process.node_id for process in processes)


def _count(gang: RunningGang) -> int:
    return len(gang.members) + len(gang.parked)
