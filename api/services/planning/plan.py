"""The plan of a spec: its effect if it were submitted now. Writes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.planner import Planner
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Reason
from paceline.api.schemas.jobs import Plan, PlannedStage, RankPlacement
from paceline.api.services.nodes import node_tools, shared_folder
from paceline.api.services.planning import plan_network
from paceline.api.services.planning.plan_auto import ResolvedSpec
from paceline.api.services.planning.plan_memory import kernels_of, shown, too_little_memory
from paceline.api.services.specs.job_views import node_views, request_for, request_of
from paceline.api.services.specs.job_words import places_in_mesh, readable_secrets_warning, reason_of, strategy_of
from paceline.api.services.specs.stored_specs import readable_spec_of
from paceline.cluster.policy.placement import Placement, QueuedGang, Request, place
from paceline.cluster.states import Intent, JobState
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows
from paceline.parallelism.model_shape import MASTER_BYTES, Kernels
from paceline.parallelism.words import size as in_words
from paceline.training.models.catalog import parameter_count
from paceline.training.planning.estimates import Estimates, estimates_of, setup_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload, ScriptWorkload

#: The share of a step beyond which a pipeline's ranks idle for longer than with its default number of micro-batches.
MOST_BUBBLE = 0.25
#: What is estimated in a moment: beyond, the fixed tree and the cuts of a pipeline take seconds.
FEW_MICRO_BATCHES, FEW_STAGES = 2048, 8
#: Stands for the job that does not exist yet.
PLANNED_JOB_ID = "planned"


@dataclass(frozen=True)
class PlacementOutlook:
    """The nodes where a job would run now, or why it could not."""

    placement: list[RankPlacement] | None
    pending: Reason | None


async def plan(services: Services, resolved: ResolvedSpec, *, sees_folders: bool) -> Plan:
    """The plan of a spec. Holds no session while it estimates. `sees_folders`: whether the answer may tell which files exist on the
    coordinator's disks."""
    spec = resolved.spec
    async with services.control.read() as session:
        nodes = await node_rows.present(session)
        await node_tools.check(session, spec, nodes)
        shared_folder.refuse_apart(spec, nodes)
        outlook = await _outlook(session, spec, nodes, services.now())
    estimates = await _estimates(services.planner, spec, kernels_of(nodes, spec))
    about_files = await services.folders.warnings(spec, nodes) if sees_folders else []
    told = _describe_plan(resolved, outlook, nodes, estimates)
    return told.model_copy(update={"warnings": [*told.warnings, *about_files]})


async def check_unchanged(session: AsyncSession, resolved: ResolvedSpec, plan_hash: str, now: datetime) -> None:
    """Raise a problem when the plan that the caller has seen would come out differently now."""
    outlook = await _outlook(session, resolved.spec, await node_rows.present(session), now)
    if _hash(resolved.spec, outlook) != plan_hash:
        instead = (
            outlook.pending.text
            if outlook.pending
            else f"placed on {', '.join(sorted({each.node_name for each in outlook.placement or []}))}"
        )
        raise ProblemError(
            "plan_changed",
            f"the cluster or the spec has changed since the plan was made; now: {instead}. Plan again, or submit without plan_hash",
        )


async def _outlook(session: AsyncSession, spec: JobSpec, nodes: Sequence[NodeRow], now: datetime) -> PlacementOutlook:
    views = node_views(nodes, await slot_rows.holders(session))
    decisions = place([*await _queue(session), _request(spec, now)], views)
    decision = next(each for each in decisions if each.job_id == PLANNED_JOB_ID)
    names = {node.id: node.name for node in nodes}
    return PlacementOutlook(
        placement=_placement(spec, decision, names) if isinstance(decision, Placement) else None,
        pending=reason_of(decision.reason) if isinstance(decision, QueuedGang) else None,
    )


async def _estimates(planner: Planner, spec: JobSpec, kernels: Kernels) -> Estimates | None:
    """The memory estimates; None for a script, or for a job that is to find its micro-batch by itself."""
    if not _shares_are_known(spec):
        return None
    small = derived.micro_batches(spec) <= FEW_MICRO_BATCHES and spec.parallelism.stages <= FEW_STAGES
    return await planner.run(estimates_of, spec, kernels, small=small)


def _shares_are_known(spec: JobSpec) -> bool:
    """Whether the spec tells how a global batch is divided: not for a script, nor while the micro-batch is still to be found."""
    return not isinstance(spec.workload, ScriptWorkload) and not derived.searches_micro_batch(spec)


def _describe_plan(resolved: ResolvedSpec, outlook: PlacementOutlook, nodes: Sequence[NodeRow], estimates: Estimates | None) -> Plan:
    spec = resolved.spec
    micro_batches = derived.micro_batches(spec) if _shares_are_known(spec) else None
    placed = {each.node_id for each in outlook.placement or ()}
    memory = shown(estimates, spec, kernels_of(nodes, spec)) if estimates else None
    network = plan_network.network_plan(spec, outlook.placement, nodes)
    return Plan(
        spec=spec,
        choice=resolved.choice,
        plan_hash=_hash(spec, outlook),
        world_size=spec.world_size,
        strategy=strategy_of(spec, spec.world_size),
        global_batch_size=spec.training.global_batch_size if spec.training else None,
        micro_batch_size=derived.micro_batch_size(spec) if micro_batches else None,
        micro_batches=micro_batches,
        gradient_accumulation_steps=spec.parallelism.degrees(spec.world_size).max_per_data_rank(micro_batches) if micro_batches else None,
        reproducible=derived.is_reproducible(spec),
        parameter_count=_parameters(spec),
        stages=_stages(spec, estimates),
        memory_per_rank=memory,
        placement=outlook.placement,
        network=network,
        pending=outlook.pending,
        warnings=_warnings(
            spec,
            too_little_memory(memory, spec, nodes),
            plan_network.warning(spec, network),
            shared_folder.warning(spec, nodes, placed) or shared_folder.named_folder_warning(spec, nodes),
        ),
    )


async def _queue(session: AsyncSession) -> list[Request]:
    """The jobs that wait for slots already. A recovering one counts once it was refused slots (`pending`): until then it still holds its own."""
    jobs = [*await job_rows.queued(session), *await job_rows.in_state(session, JobState.RECOVERING)]
    return [request_of(job) for job in jobs if _waits(job) and readable_spec_of(job)]


def _waits(job: JobRow) -> bool:
    recovering = job.state is JobState.RECOVERING and job.pending is not None
    return job.desired is Intent.RUN and (job.state is JobState.QUEUED or recovering)


def _request(spec: JobSpec, now: datetime) -> Request:
    return request_for(spec, PLANNED_JOB_ID, spec.world_size, spec.priority, now)


def _placement(spec: JobSpec, placement: Placement, names: Mapping[str, str]) -> list[RankPlacement]:
    held = [(share.node_id, slot) for share in placement.shares for slot in share.slots]
    places = places_in_mesh(spec, len(held)) if held else ()
    return [
        RankPlacement(rank=rank, node_id=node, node_name=names[node], slot=slot, place=places[rank] if places else {})
        for rank, (node, slot) in enumerate(held)
    ]


def _hash(spec: JobSpec, outlook: PlacementOutlook) -> str:
    where = (
        ",".join(f"{each.node_id}:{each.slot}" for each in outlook.placement)
        if outlook.placement is not None
        else f"pending:{outlook.pending.code if outlook.pending else ''}"
    )
    return hashlib.sha256(f"{spec.model_dump_json()}\n{where}".encode()).hexdigest()


def _parameters(spec: JobSpec) -> int | None:
    match spec.workload:
        case BuiltinWorkload(model, data):
            return parameter_count(model, data)
    return None


def _stages(spec: JobSpec, estimates: Estimates | None) -> list[PlannedStage]:
    if estimates is None:
        return []
    return [PlannedStage(place=setup_of(spec).schedule.rank_of(stage), layers=layers) for stage, layers in enumerate(estimates.stages)]


def _warnings(spec: JobSpec, about_memory: str | None, about_network: str | None, about_folder: str | None) -> list[str]:
    return [
        warning
        for warning in (
            about_memory,
            about_network,
            _uneven_shares(spec),
            _incast(spec),
            _wide_bubble(spec),
            _no_checkpoint(spec),
            _no_evaluation(spec),
            readable_secrets_warning(spec),
            about_folder,
        )
        if warning
    ]


def _uneven_shares(spec: JobSpec) -> str | None:
    if not _shares_are_known(spec):
        return None
    micro_batches, ranks = derived.micro_batches(spec), derived.data_ranks(spec, spec.world_size)
    if micro_batches % ranks == 0:
        return None
    largest = spec.parallelism.degrees(spec.world_size).max_per_data_rank(micro_batches)
    return (
        f"{micro_batches} micro-batches over {ranks} {'ranks' if ranks == spec.world_size else 'data ranks'}: the others wait for those that "
        f"compute {largest}; training.micro_batch_size decides their number, and a multiple of {ranks} keeps every rank busy"
    )


def _incast(spec: JobSpec) -> str | None:
    """Say what parameter servers cost beside ddp, where the model's size is known."""
    parameters, plan = _parameters(spec), spec.parallelism
    if not plan.has_servers or parameters is None:
        return None
    workers, size = spec.world_size - plan.servers, MASTER_BYTES * parameters
    through, ring = 2 * workers * size / plan.servers, 2 * (spec.world_size - 1) / spec.world_size * size
    return (
        f"strategy parameter_server moves about {in_words(round(through))} through each server in a step, where a rank of ddp sends "
        f"{in_words(round(ring))}: it is for comparison and for learning; ddp is faster"
    )


def _wide_bubble(spec: JobSpec) -> str | None:
    if spec.parallelism.pipeline == 1:
        return None
    schedule = setup_of(spec).schedule
    if schedule.bubble <= MOST_BUBBLE:
        return None
    return (
        f"{schedule.words}: a rank idles for {schedule.bubble:.0%} of a step by the formula of {schedule.name}; a smaller "
        "training.micro_batch_size makes more of them"
    )


def _no_checkpoint(spec: JobSpec) -> str | None:
    workload, every = spec.workload, spec.checkpoint.every_steps
    if isinstance(workload, ScriptWorkload):
        pause = "" if workload.script.saves_on_sigterm else "it cannot be paused, and "
        own = spec.environment.working_directory is None
        where = ", and what it saved in the job's own folder is on that node alone: save where all nodes see it" if own else ""
        return f"a script saves its own checkpoints: {pause}it restarts from its beginning unless it loads what it saved{where}"
    steps = workload.training.steps
    if every is None or (steps is not None and every >= steps):
        return "no checkpoint is saved before the end: a crash starts over at step 0"
    return None


def _no_evaluation(spec: JobSpec) -> str | None:
    workload = spec.workload
    if isinstance(workload, ScriptWorkload) or workload.training.eval_every_steps is not None or spec.checkpoint.keep_best == 0:
        return None
    if not spec.checkpoint.metric.startswith("eval_"):
        return None
    return f"checkpoint.keep_best goes by {spec.checkpoint.metric}, but training.eval_every_steps is null: there will be no best checkpoint"
