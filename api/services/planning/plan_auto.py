"""Replaces `strategy: auto` by the plan that the coordinator chooses, and accounts for the choice to clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError
from paceline.api.schemas.plan_choice import PlanChoice, PlanOption
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.planning.plan_machines import ClusterProfile, cluster_profile
from paceline.db.models.events import PLANNED
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import nodes as node_rows
from paceline.parallelism.planning import auto_words as words
from paceline.parallelism.planning.auto import Candidate, Choice
from paceline.parallelism.words import size
from paceline.training.planning.auto import asked, chosen, written
from paceline.training.planning.estimates import memory_of
from paceline.training.spec.job import JobSpec

STRATEGY = "/parallelism/strategy"
#: Rejected plans that are told of one by one.
MOST_TOLD = 40
#: Ranks whose plans are looked at in a moment.
SMALL_WORLD = 4


@dataclass(frozen=True)
class ResolvedSpec:
    """A spec that ranks can be built from. `choice` and `profile`: where the user left the strategy to Paceline, and the cluster that it
    was chosen for."""

    spec: JobSpec
    choice: PlanChoice | None = None
    profile: ClusterProfile | None = None


class ClusterChangedError(Exception):
    """The nodes have changed since a plan was chosen for them."""


async def resolve(services: Services, spec: JobSpec) -> ResolvedSpec:
    """The spec with a chosen plan. Raises a problem where nothing fits. Holds no session while it chooses: a large world has thousands
    of plans."""
    if not spec.parallelism.is_auto:
        return ResolvedSpec(spec)
    async with services.control.read() as session:
        profile = cluster_profile(spec, await node_rows.present(session))
    small = spec.resources.most_ranks <= SMALL_WORLD
    try:
        choice, rejected = await services.planner.run(chosen, spec, profile.machines, profile.kernels, MOST_TOLD, small=small)
    except ValueError as error:
        raise _refused("cannot_choose", str(error)) from None
    if choice.best is None:
        raise _refused("nothing_fits", choice.why + _elastic_way_out(spec))
    return ResolvedSpec(written(spec, choice.best.setup), _account(spec, choice, choice.best, profile.assumed, rejected), profile)


async def check_cluster_profile(session: AsyncSession, asked: JobSpec, resolved: ResolvedSpec) -> None:
    """Check the nodes in the transaction that stores the job. Raises ClusterChangedError where a plan is to be chosen again, or for the
    first time."""
    if not asked.parallelism.is_auto:
        return
    try:
        profile = cluster_profile(asked, await node_rows.present(session))
    except ProblemError as error:
        raise ClusterChangedError from error
    if resolved.profile != profile:
        raise ClusterChangedError


async def record(session: AsyncSession, job: JobRow, choice: PlanChoice, now: datetime) -> None:
    """Record the choice and its reasons as an event, which stays for as long as there is a history."""
    cause = ", ".join(choice.asked)
    await job_lifecycle.record_event(session, job, PLANNED, SYSTEM, cause, choice.why, now, {"choice": choice.model_dump(mode="json")})


async def choice_of(session: AsyncSession, job_id: str) -> PlanChoice | None:
    event = await event_rows.planned(session, job_id)
    return PlanChoice.model_validate(event.data["choice"]) if event else None


async def too_large_at(session: AsyncSession, job_id: str, spec: JobSpec, ranks: int) -> str | None:
    """Why the plan that was chosen for a job does not fit another number of ranks."""
    choice = await choice_of(session, job_id)
    if choice is None:
        return None
    needed = memory_of(spec, cluster_profile(spec, await node_rows.present(session)).kernels, ranks)
    if needed is None or needed.total <= choice.budget_bytes:
        return None
    sizes = f"a rank would need {size(needed.total)} {needed.moment}, and {size(choice.budget_bytes)} is what its plan may take"
    return f"{sizes}; use more {spec.resources.unit}, or submit the job anew"


def _account(spec: JobSpec, choice: Choice, best: Candidate, assumed: str, rejected: int) -> PlanChoice:
    return PlanChoice(
        asked=asked(spec),
        why=choice.why,
        assumed=assumed,
        budget_bytes=choice.budget,
        chosen=_option(best, ""),
        rejected=[_option(each.candidate, each.why) for each in choice.rejected],
        not_told=rejected - len(choice.rejected),
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
    return f" An elastic job holds the whole model on each rank; without resources.min_{spec.resources.unit} and max_{spec.resources.unit} it may be cut."


def _refused(code: str, why: str) -> ProblemError:
    return ProblemError(code, f"{STRATEGY}: {why}", errors=[FieldError(pointer=STRATEGY, code=code, message=why)])
