"""What a spec would do if it were submitted now. Writes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import ProblemError
from api.schemas.common import Reason
from api.schemas.jobs import Plan, PlannedStage, RankPlacement
from api.services.job_views import node_views, request_of
from api.services.job_words import place_in_mesh, reason_of, strategy_of
from api.services.plan_auto import Resolved
from api.services.plan_memory import estimate_memory, too_little_memory
from cluster.placement import Pending, Placement, Request, place
from cluster.states import Intent, JobState
from db.models.jobs import JobRow
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows
from parallelism.plan import Deal
from training.planning.estimates import setup_of, stage_names
from training.planning.sizes import parameter_count
from training.spec.job import JobSpec

#: Of a step; beyond it a pipeline's ranks idle for longer than its default number of micro-batches would have them.
MOST_BUBBLE = 0.25
#: Stands for the job that does not exist yet.
PLANNED = "planned"


async def plan(session: AsyncSession, resolved: Resolved, now: datetime) -> Plan:
    spec = resolved.spec
    shares = spec.training is not None and not spec.searches
    nodes = await node_rows.present(session)
    views = node_views(nodes, await job_rows.holders(session))
    verdicts = place([*await _queue(session), _request(spec, now)], views)
    verdict = next(each for each in verdicts if each.job_id == PLANNED)
    names = {node.id: node.name for node in nodes}
    placement = _placement(spec, verdict, names) if isinstance(verdict, Placement) else None
    pending = reason_of(verdict.reason) if isinstance(verdict, Pending) else None
    estimate = None if spec.searches else estimate_memory(spec, nodes)
    return Plan(
        spec=spec,
        choice=resolved.choice,
        plan_hash=_hash(spec, placement, pending),
        world_size=spec.world_size,
        strategy=strategy_of(spec, spec.world_size),
        global_batch_size=spec.training.global_batch_size if spec.training else None,
        micro_batch_size=spec.micro_batch_size if shares else None,
        micro_batches=spec.micro_batches if shares else None,
        gradient_accumulation_steps=_deal(spec).largest if shares else None,
        reproducible=spec.is_reproducible,
        parameter_count=_parameters(spec),
        stages=_stages(spec),
        memory_per_rank=estimate,
        placement=placement,
        pending=pending,
        warnings=_warnings(spec, too_little_memory(estimate, spec, nodes)),
    )


async def check_unchanged(session: AsyncSession, resolved: Resolved, plan_hash: str, now: datetime) -> None:
    """A problem when the plan that the caller has seen is not what would happen now."""
    present = await plan(session, resolved, now)
    if present.plan_hash != plan_hash:
        instead = (
            present.pending.text
            if present.pending
            else f"placed on {', '.join(sorted({each.node_name for each in present.placement or []}))}"
        )
        raise ProblemError(
            "plan_changed",
            f"the cluster or the spec has changed since the plan was made; now: {instead}. Plan again, or submit without plan_hash",
        )


async def _queue(session: AsyncSession) -> list[Request]:
    """The jobs that wait for slots already. Recovering ones among them ask again for what they hold: leave them out."""
    return [request_of(job) for job in await job_rows.undecided(session) if _waits(job)]


def _waits(job: JobRow) -> bool:
    recovering = job.state is JobState.RECOVERING and job.pending is not None
    return job.desired is Intent.RUN and (job.state is JobState.QUEUED or recovering)


def _request(spec: JobSpec, now: datetime) -> Request:
    least = spec.resources.min_nodes if spec.closes_up else None
    return Request(PLANNED, spec.resources.nodes, spec.resources.slots_per_node, spec.priority, now, least, spec.parallelism)


def _placement(spec: JobSpec, verdict: Placement, names: Mapping[str, str]) -> list[RankPlacement]:
    places = [(share.node_id, slot) for share in verdict.shares for slot in share.slots]
    return [
        RankPlacement(rank=rank, node_id=node, node_name=names[node], slot=slot, place=place_in_mesh(spec, len(places), rank))
        for rank, (node, slot) in enumerate(places)
    ]


def _hash(spec: JobSpec, placement: Sequence[RankPlacement] | None, pending: Reason | None) -> str:
    where = (
        ",".join(f"{each.node_id}:{each.slot}" for each in placement)
        if placement is not None
        else f"pending:{pending.code if pending else ''}"
    )
    return hashlib.sha256(f"{spec.model_dump_json()}\n{where}".encode()).hexdigest()


def _parameters(spec: JobSpec) -> int | None:
    return parameter_count(spec.model, spec.data) if spec.model is not None else None


def _stages(spec: JobSpec) -> list[PlannedStage]:
    return [PlannedStage(place=setup_of(spec).schedule.rank_of(stage), layers=layers) for stage, layers in enumerate(stage_names(spec))]


def _deal(spec: JobSpec) -> Deal:
    return spec.parallelism.degrees(spec.world_size).deal(spec.micro_batches)


def _warnings(spec: JobSpec, about_memory: str | None) -> list[str]:
    return [
        warning
        for warning in (
            about_memory,
            _uneven_shares(spec),
            _wide_bubble(spec),
            _no_checkpoint(spec),
            _no_evaluation(spec),
            _several_roots(spec),
        )
        if warning
    ]


def _uneven_shares(spec: JobSpec) -> str | None:
    if spec.training is None or spec.searches or spec.micro_batches % _deal(spec).ranks == 0:
        return None
    deal, whose = _deal(spec), "ranks" if _deal(spec).ranks == spec.world_size else "data ranks"
    return (
        f"{spec.micro_batches} micro-batches over {deal.ranks} {whose}: the others wait for those that compute {deal.largest}; "
        f"training.micro_batch_size decides their number, and a multiple of {deal.ranks} keeps every rank busy"
    )


def _wide_bubble(spec: JobSpec) -> str | None:
    if spec.training is None or spec.parallelism.pipeline == 1:
        return None
    schedule = setup_of(spec).schedule
    if schedule.bubble <= MOST_BUBBLE:
        return None
    return (
        f"{schedule.words}: a rank idles for {schedule.bubble:.0%} of a step by the formula of {schedule.name}; a smaller "
        "training.micro_batch_size makes more of them"
    )


def _no_checkpoint(spec: JobSpec) -> str | None:
    every, steps = spec.checkpoint.every_steps, spec.training.steps if spec.training else None
    if spec.script is not None:
        return "a script saves its own checkpoints: it cannot be paused, and restarts from its beginning unless it does"
    if every is None or (steps is not None and every >= steps):
        return "no checkpoint is saved before the end: a crash starts over at step 0"
    return None


def _no_evaluation(spec: JobSpec) -> str | None:
    if spec.training is None or spec.training.eval_every_steps is not None or spec.checkpoint.keep_best == 0:
        return None
    if not spec.checkpoint.metric.startswith("eval_"):
        return None
    return f"checkpoint.keep_best goes by {spec.checkpoint.metric}, but training.eval_every_steps is null: there will be no best checkpoint"


def _several_roots(spec: JobSpec) -> str | None:
    if spec.resources.nodes == 1 or spec.checkpoint.directory is not None or spec.script is not None:
        return None
    return "checkpoint.directory is not set: on several machines the agents' default folder must be one that they share"
