"""`strategy: auto`: the plan that the coordinator puts in its place, and the account of it that clients see."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import ProblemError
from api.schemas.common import FieldError
from api.schemas.plan_choice import PlanChoice, PlanOption
from api.services import job_lifecycle
from api.services.identity import SYSTEM
from api.services.plan_machines import ground_of
from db.models.jobs import JobRow
from db.repositories import events as event_rows
from db.repositories import nodes as node_rows
from parallelism.planning import auto_words as words
from parallelism.planning.auto import Candidate, Choice, choose
from training.planning.auto import asked, supported_of, wanted_of, written
from training.planning.estimates import memory_of
from training.spec.job import JobSpec

#: The event that keeps what was chosen, and why, for as long as there is a history.
PLANNED = "job.planned"
STRATEGY = "/parallelism/strategy"
#: Rejected plans that are told of one by one.
MOST_TOLD = 40


@dataclass(frozen=True)
class Resolved:
    """A spec that ranks can be built from. `choice`: where the user left the strategy to us."""

    spec: JobSpec
    choice: PlanChoice | None = None


async def resolve(session: AsyncSession, spec: JobSpec) -> Resolved:
    """A problem where nothing fits. The work is done in a thread: a large world has thousands of plans."""
    if not spec.parallelism.is_auto:
        return Resolved(spec)
    ground = ground_of(spec, await node_rows.present(session))
    try:
        choice = await asyncio.to_thread(choose, wanted_of(spec, ground.kernels), ground.machines, supported_of(spec))
    except ValueError as error:
        raise _refused("cannot_choose", str(error)) from None
    if choice.best is None:
        raise _refused("nothing_fits", choice.why + _elastic_way_out(spec))
    return Resolved(written(spec, choice.best.setup), _account(spec, choice, choice.best, ground.assumed))


async def record(session: AsyncSession, job: JobRow, choice: PlanChoice, now: datetime) -> None:
    cause = ", ".join(choice.asked)
    await job_lifecycle.record_event(session, job, PLANNED, SYSTEM, cause, choice.why, now, {"choice": choice.model_dump(mode="json")})


async def choice_of(session: AsyncSession, job_id: str) -> PlanChoice | None:
    event = await event_rows.newest_of_job(session, job_id, PLANNED)
    return PlanChoice.model_validate(event.data["choice"]) if event else None


async def too_large_at(session: AsyncSession, job_id: str, spec: JobSpec, ranks: int) -> str | None:
    """Why the plan that was chosen for a job does not fit another number of ranks."""
    choice = await choice_of(session, job_id)
    if choice is None:
        return None
    needed = memory_of(spec, ground_of(spec, await node_rows.present(session)).kernels, ranks)
    if needed is None or needed.total <= choice.budget_bytes:
        return None
    sizes = f"a rank would need {words.size(needed.total)} {needed.moment}, and {words.size(choice.budget_bytes)} is what its plan may take"
    return f"{sizes}; use more nodes, or submit the job anew"


def _account(spec: JobSpec, choice: Choice, best: Candidate, assumed: str) -> PlanChoice:
    told = choice.rejected[:MOST_TOLD]
    return PlanChoice(
        asked=asked(spec),
        why=choice.why,
        assumed=assumed,
        budget_bytes=choice.budget,
        chosen=_option(best, ""),
        rejected=[_option(each.candidate, each.why) for each in told],
        not_told=len(choice.rejected) - len(told),
    )


def _option(plan: Candidate, why: str) -> PlanOption:
    return PlanOption(
        name=plan.name,
        axes=words.degrees(plan.setup.degrees),
        activation_checkpointing=plan.setup.activation_checkpointing,
        micro_batch_size=plan.setup.micro_batch_size,
        memory_bytes=plan.memory.total,
        step_seconds=plan.time.total,
        why=why,
    )


def _elastic_way_out(spec: JobSpec) -> str:
    if not spec.resources.is_elastic:
        return ""
    return " An elastic job holds the whole model on each rank; without resources.min_nodes and max_nodes it may be cut."


def _refused(code: str, why: str) -> ProblemError:
    return ProblemError(code, f"{STRATEGY}: {why}", errors=[FieldError(pointer=STRATEGY, code=code, message=why)])
