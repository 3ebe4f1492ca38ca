"""Converts rows to the inputs of `cluster.policy.decide` and `cluster.policy.placement`, and rank reports to the failure that clients
see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from paceline.api.schemas.jobs import Failure
from paceline.api.services.specs.node_facets import disk_of, label_facets_of, mounts_of, taints_of, tools_for
from paceline.api.services.specs.script_stops import stop_of
from paceline.api.services.specs.stored_specs import readable_spec_of, spec_of
from paceline.cluster.policy import quiet
from paceline.cluster.policy.elastic import JoinFailure, RunningGang, SlotAssignment
from paceline.cluster.policy.failures import LEFT_EARLY, could_not_read, could_not_start, left_early, root_cause, share_of
from paceline.cluster.policy.placement import NodeView, Request
from paceline.cluster.policy.quiet import Suspicion
from paceline.cluster.policy.requirements import Requirements, facets
from paceline.cluster.policy.script_worlds import rests_until
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import JobState, NodeState, RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories.nodes import Reach
from paceline.db.repositories.slots import SlotHolder
from paceline.training.link import FailureReport, Outcome, Stalled
from paceline.training.reporting.failure_kinds import first_line
from paceline.training.schema.parallelism import REPLICAS
from paceline.training.schema.script import grace_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import ScriptWorkload

#: A rank that ends sooner than this after it got a place, and before it has taken so many steps there, did not work there.
USEFUL = timedelta(seconds=10)
USEFUL_STEPS = 10
_GONE = frozenset({RankState.EXITED, RankState.LOST, RankState.MOVED})


def job_view(
    job: JobRow,
    generation: GenerationRow | None,
    ranks: Sequence[RankRow],
    reach: Reach = Reach(),
    left: GenerationRow | None = None,
    up_since: datetime | None = None,
    before: Sequence[GenerationRow] = (),
) -> JobView:
    """The view of a job. `reach`: of the nodes of its ranks; `left`: the generation that a gang leaves by changing its members; `up_since`: see
    `JobView`; `before`: earlier generations, the newest first. A job whose spec cannot be read neither closes up nor runs out of restarts: see
    `job_snapshots.JobSnapshot.decide`."""
    spec = readable_spec_of(job)
    is_script = spec is not None and isinstance(spec.workload, ScriptWorkload)
    views = _rank_views(job, ranks, reach._replace(behind=()) if spec is None or is_script else reach, up_since)
    return JobView(
        state=job.state,
        desired=job.desired,
        end_reason=job.end_reason,
        state_since=job.state_since,
        generation=job.generation,
        generation_since=generation.started_at if generation else None,
        generation_ended_at=generation.ended_at if generation else None,
        restarts=job.restarts,
        max_restarts=spec.fault_tolerance.max_restarts if spec else job.restarts + 1,
        ranks=tuple(view for view, rank in zip(views, ranks, strict=True) if not rank.parked),
        parked=tuple(view for view, rank in zip(views, ranks, strict=True) if rank.parked),
        min_ranks=min(derived.min_ranks(spec), job.world_size) if spec and derived.closes_up(spec) else None,
        plan=spec.parallelism if spec else REPLICAS,
        silence=None if generation is None or generation.ended_at is not None else quiet.verdict(suspicion_of(generation)),
        own_pause=own_pause_of(spec, ranks),
        slow_is_hung=spec is not None and spec.fault_tolerance.hang_seconds is not None,
        size_before=left.world_size if left else None,
        target=job.world_size,
        is_elastic=spec is not None and derived.is_elastic_script(spec),
        is_script=is_script,
        needs_preparation=job.spec.needs_preparation,
        stop=stop_of(job),
        saves=spec is not None and derived.saves_when_stopped(spec),
        grace_seconds=grace_of(job.spec.document),
        time_limit=spec.time_limit if spec else None,
        stepless=stepless([generation, *before]) if generation else 0,
        ran_before=job.ran_seconds,
        up_since=up_since,
    )


def stepless(generations: Sequence[GenerationRow]) -> int:
    """How many of these generations, the newest first, follow on each other without a step. A step that was told late shows where the next one starts."""
    starts = [generation.start_step for generation in generations]
    made_step = [
        generation.first_step_at is not None or later > generation.start_step
        for generation, later in zip(generations, [starts[0], *starts], strict=False)
    ]
    return made_step.index(True) if True in made_step else len(made_step)


def _rank_views(
    job: JobRow,
    ranks: Sequence[RankRow],
    reach: Reach,
    up_since: datetime | None,
) -> list[RankView]:
    return [
        rank_view(
            rank,
            begun=job.state is JobState.RUNNING,
            reachable=rank.node_id not in reach.silent,
            unheard=rank.node_id in reach.unheard,
            leaving=rank.node_id in reach.draining,
            behind=rank.node_id in reach.behind,
            up_since=up_since,
        )
        for rank in ranks
    ]


def own_pause_of(spec: JobSpec | None, ranks: Sequence[RankRow]) -> int | None:
    """The step of `training.pause_at_steps` after which the members have ended; None: they have not, or at another step."""
    pauses = spec.training.pauses if spec is not None and spec.training is not None else ()
    ends = {rank.step for rank in ranks if rank.outcome == "paused" and not rank.parked}
    return ends.pop() if len(ends) == 1 and ends <= set(pauses) else None


def rank_view(
    rank: RankRow,
    *,
    begun: bool = False,
    reachable: bool = True,
    unheard: bool = False,
    leaving: bool = False,
    behind: bool = False,
    up_since: datetime | None = None,
) -> RankView:
    """The view of a rank. `begun`: its generation has joined, so that a rank that came to it as a newcomer is none any more."""
    failure = report_of(rank)
    return RankView(
        rank=rank.rank,
        state=rank.state,
        updated_at=rank.updated_at,
        outcome=cast("Outcome | None", rank.outcome),
        failure=failure,
        drained=rank.drained,
        process_kept=rank.born_generation is not None,
        newcomer=rank.newcomer and not begun and rank.state is not RankState.RUNNING,
        reachable=reachable,
        unheard=unheard,
        suspended=rank.suspended,
        stall=stall_of(rank),
        leaving=leaving,
        behind=behind,
        up_since=up_since,
        started=rank.pid is not None or rank.outcome is not None or rank.failure is not None or rank.exit_code is not None,
        could_not_begin=failure is not None and (could_not_start(failure, had_process=had_process(rank)) or could_not_read(failure)),
    )


def had_process(rank: RankRow) -> bool:
    """Whether a process was started for the rank, as far as its agent has told, in this place or an earlier one."""
    return rank.pid is not None or rank.born_generation is not None


def gang_view(
    job: JobRow, view: JobView, ranks: Sequence[RankRow], device: str, join_failures: Sequence[JoinFailure], changes: int = 0
) -> RunningGang:
    """The view of a gang. `view` and `ranks` are of the same moment. `changes`: recent changes of the world of an elastic script."""
    spec = spec_of(job)
    most = spec.resources.most_ranks if job.world_size == spec.world_size else job.world_size
    prepared = job.spec.needs_preparation
    processes = [
        slot_assignment_of(rank, known, needs_preparation=prepared)
        for rank, known in _paired(ranks, (*view.ranks, *view.parked))
        if not known.stopped
    ]
    parked = {rank.rank for rank in ranks if rank.parked}
    return RunningGang(
        job_id=job.id,
        device=device,
        most_per_node=spec.resources.slots_per_node if spec.resources.spread else None,
        members=tuple(process for process in processes if process.rank not in parked),
        parked=tuple(process for process in processes if process.rank in parked),
        least=min(derived.min_ranks(spec), job.world_size),
        plan=spec.parallelism,
        requirements=requirements_of(spec),
        one_folder=derived.needs_one_folder(spec),
        directory=derived.named_folder(spec),
        target=job.world_size,
        most=most,
        ceiling=most if isinstance(spec.workload, ScriptWorkload) else max(job.world_size, derived.micro_batches(spec)),
        spares=spec.fault_tolerance.spares,
        block=spec.resources.slots_per_block,
        join_failures=(*join_failures, *_given_up(ranks)),
        request=on_same_device(request_of(job), device) if view.is_elastic else None,
        rests_until=rests_until(view.generation_since, changes) if view.is_elastic and view.generation_since else None,
    )


def _paired(ranks: Sequence[RankRow], views: Sequence[RankView]) -> list[tuple[RankRow, RankView]]:
    by_rank = {view.rank: view for view in views}
    return [(rank, by_rank[rank.rank]) for rank in ranks if rank.state is not RankState.STOPPING]


def slot_assignment_of(rank: RankRow, known: RankView, *, needs_preparation: bool = False) -> SlotAssignment:
    ready = rank.state is RankState.PARKED and known.reachable
    starts = rank.parked and rank.state in (RankState.ASSIGNED, RankState.STARTING) and known.reachable
    return SlotAssignment(
        rank.rank,
        rank.node_id,
        rank.slot,
        known.leaving,
        ready_since=rank.updated_at if ready else None,
        starts_since=max(rank.updated_at, known.up_since or rank.updated_at) if starts else None,
        prepares=needs_preparation and rank.state is RankState.ASSIGNED,
    )


def _given_up(ranks: Sequence[RankRow]) -> list[JoinFailure]:
    """Parked ranks that were told to end since they did not get ready, and whose agent has not said that they have ended."""
    late = [rank for rank in ranks if rank.parked and rank.state is RankState.STOPPING and rank.outcome == "failed"]
    return sorted((_join_failure(rank) for rank in late), key=lambda failure: failure.at)


def _join_failure(rank: RankRow) -> JoinFailure:
    report = report_of(rank)
    if report is None:
        return JoinFailure(rank.updated_at, "it exited without a report", rank.node_id)
    return JoinFailure(rank.updated_at, first_line(report.message), rank.node_id, timed_out=report.exception == TimeoutError.__name__)


def join_failures_of(joiners: Sequence[tuple[RankRow, GenerationRow]], now: datetime) -> list[JoinFailure]:
    """Joiners that failed since the last one that joined. A joiner that was told to leave did not fail."""
    found: list[JoinFailure] = []
    for rank, generation in joiners:
        report = report_of(rank)
        if not rank.parked and _has_joined(rank, generation, now):
            found.clear()
        elif rank.state is RankState.EXITED and rank.outcome == "failed" and not (report and report.ordered):
            found.append(_join_failure(rank))
    return found


def _has_joined(rank: RankRow, generation: GenerationRow, now: datetime) -> bool:
    lived = (rank.updated_at if rank.state in _GONE else now) - generation.started_at
    return lived >= USEFUL or rank.step - generation.start_step >= USEFUL_STEPS


def request_of(job: JobRow) -> Request:
    return request_for(spec_of(job), job.id, job.world_size, job.priority, job.queued_at)


def on_same_device(request: Request, device: str | None) -> Request:
    """The request of a job that has run on this device, and goes on there: its numbers would be others elsewhere. None: it has not run."""
    wanted = request.requirements
    if device is None or wanted.device is not None:
        return request
    return replace(request, requirements=replace(wanted, device=device, has_run=True))


def request_for(spec: JobSpec, job_id: str, world_size: int, priority: int, queued_at: datetime) -> Request:
    resources, size = spec.resources, spec.resources.slots_per_block
    return Request(
        job_id=job_id,
        blocks=-(-world_size // size),
        slots_per_block=size,
        priority=priority,
        queued_at=queued_at,
        min_blocks=resources.min_blocks if derived.closes_up(spec) or derived.is_elastic_script(spec) else None,
        plan=spec.parallelism,
        most_blocks=resources.max_blocks if derived.is_elastic_script(spec) and world_size == spec.world_size else None,
        spread=resources.spread,
        requirements=requirements_of(spec),
        one_folder=derived.needs_one_folder(spec),
        directory=derived.named_folder(spec),
    )


def requirements_of(spec: JobSpec) -> Requirements:
    resources = spec.resources
    tools = {tool.facet for tool in tools_for(spec)}
    return Requirements(resources.device, facets(resources.labels) | tools, frozenset(resources.tolerations))


def node_views(nodes: Sequence[NodeRow], holders: Sequence[SlotHolder]) -> list[NodeView]:
    held: defaultdict[str, set[int]] = defaultdict(set)
    for holder in holders:
        held[holder.node_id].add(holder.slot)
    return [
        NodeView(
            id=node.id,
            name=node.name,
            device=node.device,
            slots=node.slots,
            free=tuple(slot for slot in range(node.slots) if slot not in held[node.id]),
            schedulable=node.state is NodeState.READY,
            labels=label_facets_of(node),
            taints=facets(taints_of(node)),
            folder=disk_of(node),
            mounts=mounts_of(node),
        )
        for node in nodes
    ]


def describe_failure(ranks: Sequence[RankRow], node_names: Mapping[str, str]) -> dict[str, Any] | None:
    """The culprit with its victims folded under it, as stored with the job; None when no rank has failed."""
    reports = [report for rank in ranks if (report := report_of(rank)) is not None]
    by_rank = {rank.rank: rank for rank in ranks}
    removed = {report.rank for report in reports if report.kind == "node_removed"}
    lost = [_lost(rank, node_names) for rank in ranks if rank.state is RankState.LOST and rank.rank not in removed]
    culprit, victims = root_cause(reports)
    named = [_failure(report, by_rank[report.rank], node_names, culprit) for report in ([culprit, *victims] if culprit else [])]
    early = left_early(reports, [rank.rank for rank in ranks if rank.outcome == "completed"])
    if early is not None and not lost:
        named.insert(0, _left_early(by_rank[early], node_names))
    lost_first = lost and (culprit is None or culprit.kind in ("peer_lost", "signal"))
    failures = [*lost, *named] if lost_first else [*named, *lost]
    if not failures:
        return None
    return failures[0].model_copy(update={"victims": failures[1:]}).model_dump(mode="json")


def report_of(rank: RankRow) -> FailureReport | None:
    """The rank's report of its end, under the number that it has in its generation.

    A process that dies before it takes its place in a newer generation reports under the number of the older one. Its peers' numbers
    (`ended`) are of that generation as well, and are left out. An unreadable report still says that the rank has failed."""
    if rank.failure is None:
        return None
    try:
        report = msgspec.convert(rank.failure, FailureReport)
    except msgspec.ValidationError as error:
        message = f"what it said of its end cannot be read: {error}"
        return FailureReport(kind="exit", rank=rank.rank, message=message, step=rank.step, time=rank.updated_at.timestamp())
    return report if report.rank == rank.rank else msgspec.structs.replace(report, rank=rank.rank, ended=())


def stall_of(rank: RankRow) -> Stalled | None:
    """The operation in which the rank is for too long. An unreadable report counts as none: it comes again as long as the rank is
    stalled."""
    if rank.stall is None:
        return None
    try:
        return msgspec.convert(rank.stall, Stalled)
    except msgspec.ValidationError:
        return None


def suspicion_of(generation: GenerationRow) -> Suspicion | None:
    """The suspicion that the job hangs. An unreadable one counts as none: it is found again while the generation is quiet."""
    if generation.hang is None:
        return None
    try:
        return msgspec.convert(generation.hang, Suspicion)
    except msgspec.ValidationError:
        return None


def _left_early(rank: RankRow, node_names: Mapping[str, str]) -> Failure:
    return Failure(
        kind="exit",
        rank=rank.rank,
        node_name=node_names.get(rank.node_id, rank.node_id),
        generation=rank.generation,
        message=LEFT_EARLY,
        step=rank.step,
        exit_code=rank.exit_code,
    )


def _failure(report: FailureReport, rank: RankRow, node_names: Mapping[str, str], culprit: FailureReport | None) -> Failure:
    return Failure(
        kind=report.kind,
        rank=report.rank,
        node_name=node_names.get(rank.node_id, rank.node_id),
        generation=rank.generation,
        message=report.message,
        exception=report.exception,
        traceback=report.traceback,
        users_traceback=report.users_traceback,
        where=report.where,
        share="victim" if culprit is None or report is culprit else share_of(report, culprit),
        step=report.step,
        exit_code=report.exit_code if report.exit_code is not None else rank.exit_code,
        signal=report.signal or rank.signal,
        last_lines=list(report.last_lines),
    )


def _lost(rank: RankRow, node_names: Mapping[str, str]) -> Failure:
    name = node_names.get(rank.node_id, rank.node_id)
    return Failure(
        kind="node_lost", rank=rank.rank, node_name=name, generation=rank.generation, message=f"node {name} is lost", step=rank.step
    )
