"""Jobs as clients see them, and the actions on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor, Reason
from paceline.api.schemas.jobs import Failure, Generation, Job, JobExperiment, JobProgress, JobSummary, Rank, Resize
from paceline.api.services.ingest import bad_losses
from paceline.api.services.ingest.communication import COMMUNICATION
from paceline.api.services.ingest.progress import not_finite_step
from paceline.api.services.jobs import notices, revisions
from paceline.api.services.jobs.notices import Notices
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.planning import plan_auto
from paceline.api.services.specs.job_words import CURVES_PRINTED, model_of, places_in_mesh, strategy_of
from paceline.api.services.specs.script_stops import BAD_LOSS
from paceline.api.services.specs.stored_specs import readable_spec_of, required_spec_of, stored_part, why_unreadable
from paceline.api.services.storage import removals
from paceline.cluster.policy.decisions import BACK_TO_QUEUE
from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason, Intent, JobState, RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import experiments as experiment_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec import derived
from paceline.training.spec.conflicts import too_few_micro_batches
from paceline.training.spec.job import LABEL_NAME, JobSpec
from paceline.training.spec.workload import ScriptWorkload

#: The prefix of a query's parameter for a label, whose name follows, and the most of them.
LABEL, MOST_LABELS = "label.", 16

#: A job is shown with so many of its newest generations: one that has recovered for weeks has tens of thousands.
MOST_GENERATIONS = 100
#: The model and strategy that are told of a job whose spec cannot be read.
UNKNOWN = "unknown"


async def find(session: AsyncSession, job_id: str, *, lock: bool = False) -> JobRow:
    job = await (job_rows.get_locked if lock else job_rows.get)(session, job_id)
    if job is None:
        raise not_found("job", job_id)
    return job


async def ended_before(session: AsyncSession, job_ids: Sequence[str], before: datetime) -> tuple[str, ...]:
    """Return those of these jobs that ended by then, and those that are not known any more."""
    others = await job_rows.not_ended_before(session, job_ids, before)
    return tuple(job_id for job_id in job_ids if job_id not in others)


# --- what clients see


#: In the stored progress, beside what rank 0 has reported last.
NOT_TOLD = ("not_finite", BAD_LOSS, COMMUNICATION, job_lifecycle.SET_BACK)


def progress_of(job: JobRow) -> JobProgress:
    """How far the job is. A completed one has done all its steps, though the metrics of the last ones may still be on their way here, and
    of a short one all may have come before its ranks announced their number. A script may end before the number of steps it announced, so
    its last report stands."""
    told = {name: value for name, value in (job.progress or {}).items() if name not in NOT_TOLD}
    if job.state is JobState.COMPLETED and not job.spec.is_script:
        total = told.get("total_steps") or job.spec.part("training", "steps")
        told |= {} if total is None else {"step": total, "total_steps": total, "eta_seconds": 0.0}
    not_finite = not_finite_step(job.progress, job.generation)
    return JobProgress.model_validate(told | {"not_finite_step": not_finite, "bad_loss": bad_losses.shown(job)})


def summarize(job: JobRow, told: Notices) -> JobSummary:
    spec = readable_spec_of(job)
    return JobSummary(
        id=job.id,
        name=job.name,
        project=job.project,
        priority=job.priority,
        labels=job.labels,
        state=job.state,
        desired=job.desired,
        end_reason=job.end_reason,
        pending=Reason.model_validate({**job.pending, "no_launch": told.no_launch}) if job.pending else None,
        progress=progress_of(job),
        world_size=job.world_size,
        last_world_size=told.ended_with,
        generation=job.generation,
        restarts=job.restarts,
        strategy=strategy_of(spec, told.ended_with or job.world_size) if spec else UNKNOWN,
        model=model_of(spec) if spec else UNKNOWN,
        unreadable=why_unreadable(job),
        hang=told.hang,
        silent_nodes=list(told.silent_nodes),
        can_pause=job.state is JobState.QUEUED or _saves_when_ended(job),
        can_resize=spec is not None and derived.can_resize(spec),
        created_by=job.created_by,
        created_by_id=job.created_by_id,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        ran_seconds=told.ran_seconds,
        archived_at=job.archived_at,
    )


async def describe(session: AsyncSession, job: JobRow, now: datetime) -> Job:
    """A job as clients see it. The sequence number is read first: an event between it and the rest is seen twice rather than never."""
    as_of_seq = await event_rows.newest_seq(session)
    ranks, rows = ([], []) if job.generation == 0 else await _gang_of(session, job)
    nodes = await node_rows.named(session, {rank.node_id for rank in ranks})
    generations = [describe_generation(row) for row in rows]
    spec = readable_spec_of(job)
    size = generations[-1].world_size if generations else job.world_size
    places = dict(enumerate(places_in_mesh(spec, size))) if spec and ranks else {}
    summary = summarize(job, (await notices.of_jobs(session, [job], now))[job.id])
    return Job(
        **summary.model_dump(),
        notes=job.notes,
        spec=spec,
        stored_spec=None if spec else job.spec.document,
        revision=job.version,
        failure=_failure_of(job),
        restored_from=job.restored_from,
        experiment=await _experiment_of(session, job),
        choice=await plan_auto.choice_of(session, job.id),
        communication=(job.progress or {}).get(COMMUNICATION),
        **_time_left(summary, spec, rows[-1] if rows else None, now),
        actual_world_size=next((each.world_size for each in generations[-1:] if each.ended_at is None), None),
        ranks=[describe_rank(rank, nodes[rank.node_id], places.get(rank.rank, {}), now) for rank in ranks],
        generations=generations,
        data_removal=await removals.of_job(session, job.id) if job.state in TERMINAL_JOB_STATES else None,
        printed_curves=await _has_printed_curves(session, job),
        as_of_seq=as_of_seq,
    )


async def _experiment_of(session: AsyncSession, job: JobRow) -> JobExperiment | None:
    found = await experiment_rows.trial_of_job(session, job.id)
    return JobExperiment(id=found.experiment_id, name=found.experiment_name, trial=found.trial) if found else None


def _time_left(job: JobSummary, spec: JobSpec | None, newest: GenerationRow | None, now: datetime) -> dict[str, Any]:
    """What the time for which the job has held slots leaves of its time limit."""
    limit = spec.time_limit if spec else None
    told = {"time_limit_seconds": limit}
    if limit is None or job.state in TERMINAL_JOB_STATES:
        return told
    under_way = newest is not None and newest.ended_at is None
    left = max(0.0, limit - job.ran_seconds)
    return told | {"time_left_seconds": left, "time_limit_at": now + timedelta(seconds=left) if under_way else None}


async def _has_printed_curves(session: AsyncSession, job: JobRow) -> bool:
    return job.spec.is_script and await event_rows.has_any(session, job.id, CURVES_PRINTED)


async def _gang_of(session: AsyncSession, job: JobRow) -> tuple[Sequence[RankRow], Sequence[GenerationRow]]:
    """The ranks of the newest generation, and the newest generations."""
    newest = (job.id, job.generation)
    ranks = (await job_rows.ranks(session, [newest]))[newest]
    return ranks, await job_rows.newest_generations(session, job.id, MOST_GENERATIONS)


def _failure_of(job: JobRow) -> Failure | None:
    """The failure as stored; an unreadable one is shown as such, and the job all the same."""
    if not job.failure:
        return None
    try:
        return Failure.model_validate(job.failure)
    except ValidationError as error:
        said = f"the stored failure cannot be read: {error.error_count()} wrong field(s)"
        return Failure(kind="exit", rank=0, node_name="", generation=job.generation, message=said)


def describe_rank(rank: RankRow, node_name: str, place: dict[str, int], now: datetime) -> Rank:
    return Rank(
        rank=rank.rank,
        generation=rank.generation,
        node_id=rank.node_id,
        node_name=node_name,
        slot=rank.slot,
        card=rank.card,
        parked=rank.parked,
        place=place,
        state=rank.state,
        pid=rank.pid,
        step=rank.step,
        heartbeat_age_seconds=_heartbeat_age(rank, now),
        exit_code=rank.exit_code,
        signal=rank.signal,
    )


def _heartbeat_age(rank: RankRow, now: datetime) -> float | None:
    if rank.progress_at is None or rank.state is RankState.EXITED:
        return None
    return max(0.0, (now - rank.progress_at).total_seconds())


def describe_generation(row: GenerationRow) -> Generation:
    return Generation(
        generation=row.generation,
        world_size=row.world_size,
        started_at=row.started_at,
        first_step_at=row.first_step_at,
        ended_at=row.ended_at,
        end_reason=row.end_reason,
        at_boundary=row.at_boundary,
        start_step=row.start_step,
        restored_checkpoint_id=row.restored_checkpoint_id,
    )


def parse_states(status: str | None) -> tuple[JobState, ...]:
    names = [name.strip() for name in (status or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in set(JobState)]
    if unknown:
        raise ProblemError("invalid_parameter", f"status={unknown[0]} is no state of a job; use {', '.join(JobState)}")
    return tuple(JobState(name) for name in names)


def parse_labels(parameters: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    labels = tuple((name.removeprefix(LABEL), value) for name, value in parameters if name.startswith(LABEL))
    wrong = next((name for name, _ in labels if not re.fullmatch(LABEL_NAME.pattern, name)), None)
    if wrong is not None:
        raise ProblemError("invalid_parameter", f"label.{wrong}: no label is called so; a name has {LABEL_NAME.rule}")
    if len(labels) > MOST_LABELS:
        raise ProblemError("invalid_parameter", f"{len(labels)} labels are asked for; the limit is {MOST_LABELS}")
    return labels


# --- what clients may ask


async def pause(session: AsyncSession, job: JobRow, if_match: str | None, actor: Actor, now: datetime, why: str = "") -> None:
    _refuse_finished(job, "paused")
    revisions.check(job, if_match)
    _refuse_cancelled(job)
    if job.desired is Intent.PAUSE:
        raise ProblemError("job_already_paused", f"job {job.name} is {_paused_word(job)} already; resume it with PUT .../resume")
    if job.state is not JobState.QUEUED and not _saves_when_ended(job):  # in the queue nothing can be lost
        way_out = "let it save at SIGTERM and submit it with script.saves_on_sigterm=true, or cancel it"
        raise ProblemError("cannot_pause", f"job {job.name} runs a script that does not say that it saves when it is ended; {way_out}")
    if job.state is JobState.STOPPING and job.end_reason not in (EndReason.PAUSED, *BACK_TO_QUEUE):
        raise ProblemError("job_not_running", f"job {job.name} is stopping already ({_why(job)})")
    await job_lifecycle.want(session, job, Intent.PAUSE, actor, now, why)


async def resume(session: AsyncSession, job: JobRow, if_match: str | None, actor: Actor, now: datetime, why: str = "") -> None:
    _refuse_finished(job, "resumed")
    revisions.check(job, if_match)
    _refuse_cancelled(job)
    if job.desired is not Intent.PAUSE:
        raise ProblemError("job_not_paused", f"job {job.name} is {job.state.value}, not paused; there is nothing to resume")
    await job_lifecycle.want(session, job, Intent.RUN, actor, now, why)


async def cancel(session: AsyncSession, job: JobRow, if_match: str | None, actor: Actor, now: datetime, why: str = "") -> None:
    """Cancel a job. Asking again while it is being cancelled is harmless."""
    _refuse_finished(job, "cancelled")
    revisions.check(job, if_match)
    if job.desired is not Intent.CANCEL:
        await job_lifecycle.want(session, job, Intent.CANCEL, actor, now, why)


async def resize(session: AsyncSession, job: JobRow, size: Resize, if_match: str | None, actor: Actor, now: datetime) -> None:
    """Resize a job. One that closes up changes its size while it runs; another one stops with a checkpoint and waits for the new slots.
    One that is queued or paused has the size when it is placed next."""
    _refuse_finished(job, "resized")
    revisions.check(job, if_match)
    _refuse_cancelled(job)
    spec = required_spec_of(job)
    blocks = _blocks_of(job, spec, size)
    _refuse_size(job, spec, blocks)
    world_size = blocks * spec.resources.slots_per_block
    if too_large := await plan_auto.too_large_at(session, job.id, spec, world_size):
        raise ProblemError("cannot_resize", f"{spec.resources.unit}={blocks}: {too_large}")
    if world_size != job.world_size:
        await job_lifecycle.resize(session, job, world_size, actor, now)


def _saves_when_ended(job: JobRow) -> bool:
    """Whether what the job runs saves before it ends on request: a script does where its spec says so."""
    script = stored_part(job, "script")
    return script is None or (isinstance(script, dict) and script.get("saves_on_sigterm") is True)


def _blocks_of(job: JobRow, spec: JobSpec, size: Resize) -> int:
    """The size in the unit of the job's spec. Slots are accepted for any job, as far as they come to whole nodes."""
    resources = spec.resources
    if size.slots is None:
        assert size.nodes is not None
        if resources.unit == "slots":
            raise ProblemError("cannot_resize", f"nodes={size.nodes}: job {job.name} asks for slots={resources.slots}; give slots")
        return size.nodes
    blocks, rest = divmod(size.slots, resources.slots_per_block)
    if rest:
        per_node = resources.slots_per_node
        nearest = " or ".join(str(count * per_node) for count in (blocks, blocks + 1) if count)
        raise ProblemError(
            "cannot_resize", f"slots={size.slots} is no multiple of resources.slots_per_node={per_node} of job {job.name}; use {nearest}"
        )
    return blocks


def _refuse_size(job: JobRow, spec: JobSpec, blocks: int) -> None:
    """Raise a problem where the job cannot have so many of what its spec counts in."""
    resources, unit = spec.resources, spec.resources.unit
    asked, ranks = f"{unit}={blocks}", blocks * resources.slots_per_block
    least, most = resources.min_blocks or 1, resources.max_blocks
    if isinstance(spec.workload, ScriptWorkload):
        if not resources.is_elastic:
            way_out = f"submit it with resources.min_{unit} and max_{unit}"
            raise ProblemError("cannot_resize", f"{asked}: job {job.name} runs a script that has one size only; {way_out}")
        least, most = resources.min_blocks or resources.blocks, most or resources.blocks
    if spec.parallelism.strategy == "single" and blocks != 1:
        raise ProblemError(
            "cannot_resize", f"{asked}: job {job.name} has strategy single, which is one process; submit it with strategy ddp"
        )
    if misfit := spec.parallelism.misfit(ranks):
        raise ProblemError("cannot_resize", f"{asked}: {misfit}")
    if blocks < least:
        raise ProblemError("cannot_resize", f"{asked} is less than resources.min_{unit}={least} of job {job.name}; use {least} or more")
    if most is not None and blocks > most:
        raise ProblemError("cannot_resize", f"{asked} is more than resources.max_{unit}={most} of job {job.name}; use {most} or fewer")
    if short := too_few_micro_batches(spec, ranks):
        fitting = derived.micro_batches(spec) // resources.slots_per_block
        raise ProblemError("cannot_resize", f"{asked}: {short}; use {fitting} or fewer")


def _refuse_finished(job: JobRow, participle: str) -> None:
    if job.state in TERMINAL_JOB_STATES:
        ended = f" at {job.ended_at:%Y-%m-%d %H:%M:%S} UTC" if job.ended_at else ""
        reason = f" ({job.end_reason.value})" if job.end_reason and job.end_reason.value != job.state.value else ""
        verb = "was cancelled" if job.state is JobState.CANCELLED else job.state.value
        raise ProblemError("job_finished", f"{job.name} can't be {participle}: it {verb}{ended}{reason}")


def _refuse_cancelled(job: JobRow) -> None:
    if job.desired is Intent.CANCEL:
        raise ProblemError("job_being_cancelled", f"job {job.name} is being cancelled; submit it again, or restore one of its checkpoints")


def _paused_word(job: JobRow) -> str:
    return "paused" if job.state is JobState.PAUSED else "being paused"


def _why(job: JobRow) -> str:
    return job.end_reason.value if job.end_reason else "no reason recorded"
