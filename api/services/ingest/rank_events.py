"""Events of a rank that are applied exactly once: checkpoints, evaluations, samples."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import node_actor
from paceline.api.schemas.common import Actor
from paceline.api.services.ingest import bad_losses, checkpoint_claims
from paceline.api.services.ingest.bad_losses import BadLossReport, LossReporter
from paceline.api.services.ingest.communication import CommunicationReport, keep_communication
from paceline.api.services.ingest.screening import MAX_TIME, without_nul
from paceline.api.services.lifecycle import checkpoint_lifecycle, events, incidents, job_lifecycle
from paceline.api.services.lifecycle.incidents import CarriedOn
from paceline.api.services.specs.job_words import CURVES_FOUND, CURVES_PRINTED
from paceline.api.services.specs.stored_specs import stored_part
from paceline.cluster.states import CheckpointState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import jobs as job_rows
from paceline.monitoring.points import DataDropped, RankBatch, RankEvent, RunConfig
from paceline.parallelism.planning.auto_words import size as size_in_words

#: Longest text of a sample that goes into the history.
SAMPLE_CHARACTERS = 20_000
#: The same for each text of a `DataDropped`.
DROPPED_CHARACTERS = 500
#: The end of a path that is kept.
PATH_CHARACTERS = 500


#: Entries of a run's configuration, and characters of each name and text in it.
CONFIG_ENTRIES, CONFIG_CHARACTERS = 200, 200


class CheckpointCommitted(msgspec.Struct, frozen=True):
    directory: str
    step: int
    bytes: int
    manifest_sha256: str
    metrics: dict[str, float] = {}
    parameters_sha256: str | None = None
    generation: int | None = None  # its own, which may be older than that of the rank that tells of it
    stall_seconds: float | None = None  # none of these where another rank reports the save than the one that made it
    write_seconds: float | None = None
    slowdown: float | None = None


class Damaged(msgspec.Struct, frozen=True):
    directory: str
    reason: str


class Restored(msgspec.Struct, frozen=True):
    directory: str
    step: int


class FileSaved(msgspec.Struct, frozen=True):
    """The newest checkpoint in a script's folders, as far as its file tells."""

    path: str
    bytes: int
    time: float
    step: int | None = None


class MicroBatchFound(msgspec.Struct, frozen=True):
    size: int
    peak_bytes: int
    limit_bytes: int
    tried: dict[str, int] = {}


async def apply(session: AsyncSession, node: NodeRow, batch: RankBatch, event: RankEvent) -> None:
    """Bring one rank event into the rows. The caller makes sure that it comes once, and that the job exists.

    An unreadable event is noted and passed over: kept back, it would hold up all later events of the rank."""
    event = msgspec.structs.replace(event, data=without_nul(event.data))
    now = _moment(event.time)
    try:
        await _apply(session, node, batch, event, now)
    except msgspec.ValidationError as error:
        data = {"kind": event.kind, "seq": event.seq}
        await _event(session, node, batch, "rank.event_unreadable", str(error), f"a {event.kind} event cannot be read", data, now)


def _moment(time: float) -> datetime:
    """The time of an event; now, where the rank's clock gives an impossible time."""
    return datetime.fromtimestamp(time, UTC) if 0 <= time <= MAX_TIME else datetime.now(UTC)


async def _apply(session: AsyncSession, node: NodeRow, batch: RankBatch, event: RankEvent, now: datetime) -> None:
    match event.kind:
        case "checkpoint_committed":
            await _committed(session, node, batch, msgspec.convert(event.data, CheckpointCommitted, strict=False), now)
        case "checkpoint_damaged":
            await _damaged(session, node, batch, msgspec.convert(event.data, Damaged, strict=False), now)
        case "carried_on":
            await _carried_on(session, node, batch, msgspec.convert(event.data, CarriedOn, strict=False), now)
        case "micro_batch_found":
            await _found(session, node, batch, msgspec.convert(event.data, MicroBatchFound, strict=False), now)
        case "bad_loss":
            await _bad_loss(session, node, batch, msgspec.convert(event.data, BadLossReport, strict=False), now)
        case "checkpoint_restored":
            await _restored(session, node, batch, msgspec.convert(event.data, Restored, strict=False), now)
        case "file_saved":
            await _file_saved(session, node, batch, msgspec.convert(event.data, FileSaved, strict=False), now)
        case "run_configured":
            await _configured(session, node, batch, msgspec.convert(event.data, RunConfig, strict=False), now)
        case "communication_chosen":
            await _communication(session, node, batch, msgspec.convert(event.data, CommunicationReport, strict=False), now)
        case "data_dropped":
            await _dropped(session, node, batch, msgspec.convert(event.data, DataDropped, strict=False), now)
        case _:
            await _note(session, node, batch, event, now)


async def _committed(session: AsyncSession, node: NodeRow, batch: RankBatch, saved: CheckpointCommitted, now: datetime) -> None:
    """Record a committed checkpoint, reported by the rank that saved it, by a later generation that found it, or by both. One that its
    job has gone on without is kept where it is further than the step from which the job went on: nothing is lost except for its late
    report."""
    job = await job_rows.get_locked(session, batch.job_id)
    generation = saved.generation or batch.generation
    if job is None:
        return
    if (why := checkpoint_claims.why_not_saved_at(job, saved.directory, saved.step, generation)) is not None:
        message = f"rank {batch.rank} names a checkpoint of step {saved.step} that this job cannot have saved: it is not recorded"
        await _event(session, node, batch, "rank.event_not_believed", why, message, {"directory": saved.directory[:PATH_CHARACTERS]}, now)
        return
    if await checkpoint_rows.by_directory(session, saved.directory) is not None:
        return
    set_back_to = job_lifecycle.step_set_back_to(job.progress, generation)
    stands = generation == job.generation or await job_rows.has_carried_on(session, job, since=generation)
    stands = stands and (set_back_to is None or saved.step <= set_back_to)
    state, cause = CheckpointState.COMMITTED, f"rank {batch.rank} saved step {saved.step}"
    if not stands:
        state, cause = await _left_behind(session, job, saved.step, generation)
    checkpoint = CheckpointRow(
        job_id=job.id,
        step=saved.step,
        generation=generation,
        node_id=node.id,
        state=state,
        directory=saved.directory,
        bytes=saved.bytes,
        manifest_sha256=saved.manifest_sha256,
        parameters_sha256=saved.parameters_sha256,
        metrics=saved.metrics,
        stall_seconds=saved.stall_seconds,
        write_seconds=saved.write_seconds,
        slowdown=saved.slowdown,
        created_at=now,
    )
    await checkpoint_lifecycle.record(session, checkpoint, node_actor(node), cause, now)
    if stands:
        before = 0 if generation == job.generation else (job.progress or {}).get("last_checkpoint_step") or 0
        job.progress = {**(job.progress or {}), "last_checkpoint_step": max(saved.step, before)}
        nudge_after_commit(session, bus.RETENTION)


async def _left_behind(session: AsyncSession, job: JobRow, step: int, generation: int) -> tuple[CheckpointState, str]:
    """The state of a checkpoint of a generation that was fenced off before its report came."""
    set_back_to = job_lifecycle.step_set_back_to(job.progress, generation)
    newest = await job_rows.generation(session, job.id, job.generation)
    began = (newest.start_step if newest else None) or 0
    fenced = f"generation {generation} was fenced off by generation {job.generation}"
    if set_back_to is not None and generation == job.generation:  # the next one has not begun yet
        began, fenced = set_back_to, f"the job was set back after generation {generation}"
    if step <= began:
        return CheckpointState.DELETING, f"{fenced}, and went on from step {began}: what it saved is debris"
    why = f"{fenced}, and went on from step {began} before this was heard of: it is kept, and can be restored"
    return CheckpointState.SUPERSEDED, why


async def _damaged(session: AsyncSession, node: NodeRow, batch: RankBatch, damaged: Damaged, now: datetime) -> None:
    checkpoint = await checkpoint_claims.known_to(session, batch.job_id, damaged.directory)
    if checkpoint is not None and checkpoint.state in (CheckpointState.COMMITTED, CheckpointState.SUPERSEDED):
        damage = CheckpointState.DAMAGED
        await checkpoint_lifecycle.move(session, checkpoint, damage, node_actor(node), damaged.reason, now, damage=damaged.reason)


async def _restored(session: AsyncSession, node: NodeRow, batch: RankBatch, restored: Restored, now: datetime) -> None:
    """Record a restore. Only rank 0 reports for its generation: the others restore the same."""
    generation: GenerationRow | None = await job_rows.generation(session, batch.job_id, batch.generation)
    if generation is None or batch.rank != 0:
        return
    checkpoint = await checkpoint_claims.known_to(session, batch.job_id, restored.directory)
    generation.start_step = restored.step
    generation.restored_checkpoint_id = checkpoint.id if checkpoint else None
    await incidents.note_restored(session, batch.job_id, batch.generation, restored.step, now)
    data = {"checkpoint_id": generation.restored_checkpoint_id, "step": restored.step}
    await _event(session, node, batch, "checkpoint.restored", restored.directory, f"continues from step {restored.step}", data, now)


async def _carried_on(session: AsyncSession, node: NodeRow, batch: RankBatch, carried: CarriedOn, now: datetime) -> None:
    job = await job_rows.get_locked(session, batch.job_id)
    generation = await job_rows.generation(session, batch.job_id, batch.generation)
    if job is None or generation is None:
        return
    generation.start_step = carried.step
    if _is_newest(job, batch):  # the records of the steps before it may have come already, and were not believed
        told = (job.progress or {}).get("step") or 0
        job.progress = {**(job.progress or {}), "step": max(told, carried.step)}
    await incidents.note_recovery(session, batch.job_id, batch.generation, carried)
    sent = f"{carried.transfers} rank(s) were behind and got the state from another" if carried.transfers else "every rank had the state"
    sent = "a part of the state was lost with its rank" if carried.fell_back else sent
    data = msgspec.to_builtins(carried)
    await _event(session, node, batch, "job.carried_on", sent, f"goes on from step {carried.step}, in the same processes", data, now)


def _is_newest(job: JobRow, batch: RankBatch) -> bool:
    """Whether the batch is of the job's newest generation, and the job was not set back after it: what is told of lost work is history alone."""
    return batch.generation == job.generation and job_lifecycle.step_set_back_to(job.progress, batch.generation) is None


async def _bad_loss(session: AsyncSession, node: NodeRow, batch: RankBatch, told: BadLossReport, now: datetime) -> None:
    job = await job_rows.get_locked(session, batch.job_id)
    if job is not None:
        reporter = LossReporter(node_actor(node), batch.generation, node.id)
        news = await bad_losses.record_bad_loss(session, job, job.progress or {}, told, reporter, now)
        if job_lifecycle.step_set_back_to(job.progress, batch.generation) is None:
            job.progress = {**(job.progress or {}), **news}


async def _found(session: AsyncSession, node: NodeRow, batch: RankBatch, found: MicroBatchFound, now: datetime) -> None:
    """Store the micro-batch size in the spec: no process that is started later searches again."""
    job = await job_rows.get_locked(session, batch.job_id)
    if job is None or stored_part(job, "training", "micro_batch_size") != "auto":
        return
    await job_lifecycle.set_micro_batch(session, job, found.size)
    used = f"{size_in_words(found.peak_bytes)} of the {size_in_words(found.limit_bytes)} that may be used"
    message = f"micro-batches of {found.size} samples: the largest that fit, with {used}"
    data = msgspec.to_builtins(found)
    await _event(session, node, batch, "job.micro_batch", "training.micro_batch_size: auto", message, data, now)


async def _communication(session: AsyncSession, node: NodeRow, batch: RankBatch, told: CommunicationReport, now: datetime) -> None:
    job = await job_rows.get_locked(session, batch.job_id)
    if job is not None and _is_newest(job, batch):
        data = keep_communication(job, told)
        await _event(session, node, batch, "job.communication", data["links"], f"gradients are summed {data['text']}", data, now)


async def _file_saved(session: AsyncSession, node: NodeRow, batch: RankBatch, saved: FileSaved, now: datetime) -> None:
    """Record a saved file of a script. A restarted reader reports the same file again."""
    job = await job_rows.get_locked(session, batch.job_id)
    path = saved.path[-PATH_CHARACTERS:]
    document = {"path": path, "bytes": saved.bytes, "step": saved.step, "time": _moment(saved.time).isoformat()}
    if job is None or (job.progress or {}).get("saved_file") == document:
        return
    job.progress = {**(job.progress or {}), "saved_file": document}
    step = "" if saved.step is None else f", step {saved.step} by its name"
    message = f"the newest checkpoint in the script's folder is {PurePath(path).name}: {size_in_words(saved.bytes)}{step}"
    await _event(session, node, batch, "job.file_saved", f"rank {batch.rank}", message, document, now)


async def _dropped(session: AsyncSession, node: NodeRow, batch: RankBatch, dropped: DataDropped, now: datetime) -> None:
    """Record dropped data. Text from a rank's code is cut."""
    data = {name: value[:DROPPED_CHARACTERS] if isinstance(value, str) else value for name, value in msgspec.to_builtins(dropped).items()}
    message = f"{data['what']} of rank {batch.rank} are dropped, for example {data['example']}"
    await _event(session, node, batch, "rank.data_dropped", data["reason"], message, data, now)


async def _configured(session: AsyncSession, node: NodeRow, batch: RankBatch, run: RunConfig, now: datetime) -> None:
    """Record a rank's configuration. Text from the rank's code is cut."""
    entries = list(run.config.items())[:CONFIG_ENTRIES]
    config = {name[:CONFIG_CHARACTERS]: value[:CONFIG_CHARACTERS] if isinstance(value, str) else value for name, value in entries}
    name, project = run.name[:CONFIG_CHARACTERS], run.project[:CONFIG_CHARACTERS]
    listed = ", ".join(f"{entry}={value}" for entry, value in config.items())
    message = f"trains with {listed}" if len(listed) <= DROPPED_CHARACTERS else f"trains with {listed[:DROPPED_CHARACTERS]}…"
    cause = " of ".join(word for word in (f"run {name}" if name else "", project) if word) or f"rank {batch.rank}"
    await _event(session, node, batch, "job.configured", cause, message, {"name": name, "project": project, "config": config}, now)


async def _note(session: AsyncSession, node: NodeRow, batch: RankBatch, event: RankEvent, now: datetime) -> None:
    data = dict(event.data)
    match event.kind:
        case "checkpoint_failed":
            name, message = "checkpoint.failed", f"saving step {data.get('step')} failed; training goes on"
        case "evaluated":
            name, message = "job.evaluated", f"evaluated at step {data.get('step')}"
        case "curves_found":
            name, message = CURVES_FOUND, f"curves of rank {batch.rank} come from {str(data.get('path'))[:DROPPED_CHARACTERS]}"
            if data.get("printed") is True:
                name, message = CURVES_PRINTED, f"curves of rank {batch.rank} are read from the lines that it prints"
            data = {
                "path": str(data.get("path"))[:DROPPED_CHARACTERS],
                "late": bool(data.get("late")),
                "reason": str(data.get("how"))[:DROPPED_CHARACTERS],
            }
        case _:
            name, message = "job.sample", f"a sample at step {data.get('step')}"
            data["text"] = str(data.get("text", ""))[:SAMPLE_CHARACTERS]
    cause = str(data.get("reason") or f"rank {batch.rank}")
    await _event(session, node, batch, name, cause, message, data, now)


async def _event(
    session: AsyncSession, node: NodeRow, batch: RankBatch, type: str, cause: str, message: str, data: dict[str, Any], now: datetime
) -> None:
    actor: Actor = node_actor(node)
    await events.record(
        session,
        type=type,
        actor=actor,
        cause=cause,
        message=message,
        job_id=batch.job_id,
        node_id=node.id,
        generation=batch.generation,
        data={"rank": batch.rank, **data},
        time=now,
    )
