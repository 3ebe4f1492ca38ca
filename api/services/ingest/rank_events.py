"""Events of a rank that are applied exactly once: checkpoints, evaluations, samples."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Literal, TypeVar

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import node_actor
from paceline.api.schemas.common import Actor
from paceline.api.services.ingest import bad_losses, checkpoint_claims
from paceline.api.services.ingest.bad_losses import BadLossReport, LossReporter
from paceline.api.services.ingest.communication import CommunicationReport, keep_communication
from paceline.api.services.ingest.history_room import HistoryRoom
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
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import jobs as job_rows
from paceline.monitoring.points import DataDropped, RankBatch, RankEvent, RunConfig
from paceline.parallelism.words import size as size_in_words

#: Longest text of a sample that goes into the history.
SAMPLE_CHARACTERS = 20_000
DATA_DROPPED = "rank.data_dropped"
#: The same for each text of a `DataDropped`.
DROPPED_CHARACTERS = 500
#: The end of a path that is kept.
PATH_CHARACTERS = 500
#: Metrics of an evaluation or a checkpoint that are kept.
MOST_METRICS = 100
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


class CheckpointFailed(msgspec.Struct, frozen=True):
    step: int
    reason: str


class Evaluated(msgspec.Struct, frozen=True):
    step: int
    metrics: dict[str, float | Literal["NaN", "Infinity", "-Infinity"]] = {}


class Sample(msgspec.Struct, frozen=True):
    step: int
    text: str


class ReportedEvents:
    """Applies events that one rank reported at one time."""

    def __init__(self, session: AsyncSession, node: NodeRow, batch: RankBatch, time: datetime, room: HistoryRoom) -> None:
        self._session = session
        self._node = node
        self._batch = batch
        self._time = time
        self._room = room
        self._actor: Actor = node_actor(node)
        self.left_out: str | None = None

    async def checkpoint_committed(self, saved: CheckpointCommitted) -> None:
        """Record a committed checkpoint, reported by the rank that saved it, by a later generation that found it, or by both. However late
        it is reported, it counts where its job went on from its step or a later one; else the job has gone another way, and it is superseded."""
        job = await job_rows.get_locked(self._session, self._batch.job_id)
        generation = saved.generation or self._batch.generation
        if job is None:
            return
        if (why := checkpoint_claims.why_not_saved_at(job, saved.directory, saved.step, generation)) is not None:
            message = f"rank {self._batch.rank} names a checkpoint of step {saved.step} that this job cannot have saved: it is not recorded"
            await self.note("rank.event_not_believed", why, message, {"directory": saved.directory[:PATH_CHARACTERS]})
            return
        if await checkpoint_rows.by_directory(self._session, saved.directory) is not None:
            return
        set_back_to = job_lifecycle.step_set_back_to(job.progress, generation)
        stands = generation == job.generation or await job_rows.has_carried_on(self._session, job, since=generation)
        stands = stands and (set_back_to is None or saved.step <= set_back_to)
        state, cause = CheckpointState.COMMITTED, f"rank {self._batch.rank} saved step {saved.step}"
        if not stands:
            left_at, why = await _left_at(self._session, job, generation)
            stands = saved.step <= left_at
        if not stands:
            state = CheckpointState.SUPERSEDED
            cause = f"{why}, and went on from step {left_at} before this was heard of: it is kept, and can be restored"
        checkpoint = CheckpointRow(
            job_id=job.id,
            step=saved.step,
            generation=generation,
            node_id=self._node.id,
            state=state,
            directory=saved.directory,
            bytes=saved.bytes,
            manifest_sha256=saved.manifest_sha256,
            parameters_sha256=saved.parameters_sha256,
            metrics=_first_of(saved.metrics),
            stall_seconds=saved.stall_seconds,
            write_seconds=saved.write_seconds,
            slowdown=saved.slowdown,
            created_at=self._time,
        )
        await checkpoint_lifecycle.record(self._session, checkpoint, self._actor, cause, self._time)
        if stands:
            before = 0 if generation == job.generation else (job.progress or {}).get("last_checkpoint_step") or 0
            job.progress = {**(job.progress or {}), "last_checkpoint_step": max(saved.step, before)}
            nudge_after_commit(self._session, bus.RETENTION)

    async def checkpoint_damaged(self, damaged: Damaged) -> None:
        checkpoint = await checkpoint_claims.known_to(self._session, self._batch.job_id, damaged.directory)
        if checkpoint is not None and checkpoint.state in (CheckpointState.COMMITTED, CheckpointState.SUPERSEDED):
            state, reason = CheckpointState.DAMAGED, damaged.reason[:DROPPED_CHARACTERS]
            await checkpoint_lifecycle.move(self._session, checkpoint, state, self._actor, reason, self._time, damage=reason)

    async def checkpoint_restored(self, restored: Restored) -> None:
        """Record a restore. Only rank 0 reports for its generation: the others restore the same."""
        generation: GenerationRow | None = await job_rows.generation(self._session, self._batch.job_id, self._batch.generation)
        if generation is None or self._batch.rank != 0:
            return
        checkpoint = await checkpoint_claims.known_to(self._session, self._batch.job_id, restored.directory)
        generation.start_step = restored.step
        generation.restored_checkpoint_id = checkpoint.id if checkpoint else None
        await incidents.note_restored(self._session, self._batch.job_id, self._batch.generation, restored.step, self._time)
        data = {"checkpoint_id": generation.restored_checkpoint_id, "step": restored.step}
        await self.record_essential(
            "checkpoint.restored", restored.directory[:PATH_CHARACTERS], f"continues from step {restored.step}", data
        )

    async def carried_on(self, carried: CarriedOn) -> None:
        job = await job_rows.get_locked(self._session, self._batch.job_id)
        generation = await job_rows.generation(self._session, self._batch.job_id, self._batch.generation)
        if job is None or generation is None:
            return
        generation.start_step = carried.step
        if self._is_newest(job):  # the records of the steps before it may have come already, and were not believed
            told = (job.progress or {}).get("step") or 0
            job.progress = {**(job.progress or {}), "step": max(told, carried.step)}
        await incidents.note_recovery(self._session, self._batch.job_id, self._batch.generation, carried)
        sent = (
            f"{carried.transfers} rank(s) were behind and got the state from another" if carried.transfers else "every rank had the state"
        )
        sent = "a part of the state was lost with its rank" if carried.fell_back else sent
        data = msgspec.to_builtins(carried)
        await self.record_essential("job.carried_on", sent, f"goes on from step {carried.step}, in the same processes", data)

    async def bad_loss(self, told: BadLossReport) -> None:
        job = await job_rows.get_locked(self._session, self._batch.job_id)
        if job is not None:
            self.left_out = await self._room.take_essential(self._session, job.id)
            reporter = LossReporter(self._actor, self._batch.generation, self._node.id, has_room=self.left_out is None)
            news = await bad_losses.record_bad_loss(self._session, job, job.progress or {}, told, reporter, self._time)
            if job_lifecycle.step_set_back_to(job.progress, self._batch.generation) is None:
                job.progress = {**(job.progress or {}), **news}

    async def micro_batch_found(self, found: MicroBatchFound) -> None:
        """Store the micro-batch size in the spec: no process that is started later searches again."""
        job = await job_rows.get_locked(self._session, self._batch.job_id)
        if job is None or stored_part(job, "training", "micro_batch_size") != "auto":
            return
        await job_lifecycle.set_micro_batch(self._session, job, found.size)
        used = f"{size_in_words(found.peak_bytes)} of the {size_in_words(found.limit_bytes)} that may be used"
        message = f"micro-batches of {found.size} samples: the largest that fit, with {used}"
        data = msgspec.to_builtins(found)
        await self.record("job.micro_batch", "training.micro_batch_size: auto", message, data)

    async def communication_chosen(self, told: CommunicationReport) -> None:
        job = await job_rows.get_locked(self._session, self._batch.job_id)
        if job is not None and self._is_newest(job):
            data = keep_communication(job, told)
            await self.note("job.communication", data["links"], f"gradients are summed {data['text']}", data)

    async def file_saved(self, saved: FileSaved) -> None:
        """Record a saved file of a script. A restarted reader reports the same file again."""
        job = await job_rows.get_locked(self._session, self._batch.job_id)
        path = saved.path[-PATH_CHARACTERS:]
        document = {"path": path, "bytes": saved.bytes, "step": saved.step, "time": _moment(saved.time).isoformat()}
        if job is None or (job.progress or {}).get("saved_file") == document:
            return
        job.progress = {**(job.progress or {}), "saved_file": document}
        step = "" if saved.step is None else f", step {saved.step} by its name"
        message = f"the newest checkpoint in the script's folder is {PurePath(path).name}: {size_in_words(saved.bytes)}{step}"
        await self.note("job.file_saved", f"rank {self._batch.rank}", message, document)

    async def data_dropped(self, dropped: DataDropped) -> None:
        """Record dropped data, once for each kind of a job: every process of every rank tells of its own. Text from a rank's code is cut."""
        data = {
            name: value[:DROPPED_CHARACTERS] if isinstance(value, str) else value for name, value in msgspec.to_builtins(dropped).items()
        }
        if await event_rows.has_any_about(self._session, self._batch.job_id, DATA_DROPPED, data["what"]):
            return
        message = f"{data['what']} of rank {self._batch.rank} are dropped, for example {data['example']}; this is told once for the job"
        await self.note(DATA_DROPPED, data["reason"], message, data)

    async def run_configured(self, run: RunConfig) -> None:
        """Record a rank's configuration. Text from the rank's code is cut."""
        entries = list(run.config.items())[:CONFIG_ENTRIES]
        config = {name[:CONFIG_CHARACTERS]: value[:CONFIG_CHARACTERS] if isinstance(value, str) else value for name, value in entries}
        name, project = run.name[:CONFIG_CHARACTERS], run.project[:CONFIG_CHARACTERS]
        listed = ", ".join(f"{entry}={value}" for entry, value in config.items())
        message = f"trains with {listed}" if len(listed) <= DROPPED_CHARACTERS else f"trains with {listed[:DROPPED_CHARACTERS]}…"
        cause = " of ".join(word for word in (f"run {name}" if name else "", project) if word) or f"rank {self._batch.rank}"
        await self.note("job.configured", cause, message, {"name": name, "project": project, "config": config})

    async def checkpoint_failed(self, failed: CheckpointFailed) -> None:
        reason = failed.reason[:DROPPED_CHARACTERS]
        message = f"saving step {failed.step} failed; training goes on"
        await self.record_essential(
            "checkpoint.failed", reason or f"rank {self._batch.rank}", message, {"step": failed.step, "reason": reason}
        )

    async def evaluated(self, found: Evaluated) -> None:
        data = {"step": found.step, "metrics": _first_of(found.metrics)}
        await self.note("job.evaluated", f"rank {self._batch.rank}", f"evaluated at step {found.step}", data)

    async def sample(self, sample: Sample) -> None:
        data = {"step": sample.step, "text": sample.text[:SAMPLE_CHARACTERS]}
        await self.note("job.sample", f"rank {self._batch.rank}", f"a sample at step {sample.step}", data)

    async def curves_found(self, event: RankEvent) -> None:
        """Record where a script's curves come from. The job's page and incidents go by it, so it is recorded on a nearly full disk too."""
        path, how = (str(event.data.get(name))[:DROPPED_CHARACTERS] for name in ("path", "how"))
        data = {"path": path, "late": bool(event.data.get("late")), "reason": how}
        name, message = CURVES_FOUND, f"curves of rank {self._batch.rank} come from {path}"
        if event.data.get("printed") is True:
            name, message = CURVES_PRINTED, f"curves of rank {self._batch.rank} are read from the lines that it prints"
        await self.note(name, how, message, data, on_low_disk=True)

    async def note(self, type: str, cause: str, message: str, data: dict[str, Any], *, on_low_disk: bool = False) -> None:
        """Put an event that is not essential into the job's history, where that has room for it; else `left_out` says why it has none."""
        self.left_out = await self._room.take(self._session, self._batch.job_id, on_low_disk=on_low_disk)
        if self.left_out is None:
            await self.record(type, cause, message, data)

    async def record_essential(self, type: str, cause: str, message: str, data: dict[str, Any]) -> None:
        """Put an essential event into the job's history, where that has room for it; else `left_out` says why it has none."""
        self.left_out = await self._room.take_essential(self._session, self._batch.job_id)
        if self.left_out is None:
            await self.record(type, cause, message, data)

    async def record(self, type: str, cause: str, message: str, data: dict[str, Any]) -> None:
        """Put an event into the job's history, whatever room that has: for what can come once only, or has asked for its room."""
        await events.record(
            self._session,
            type=type,
            actor=self._actor,
            cause=cause,
            message=message,
            job_id=self._batch.job_id,
            node_id=self._node.id,
            generation=self._batch.generation,
            data={"rank": self._batch.rank, **data},
            time=self._time,
        )

    def _is_newest(self, job: JobRow) -> bool:
        """Whether the rank is of the job's newest generation, and the job was not set back after it: what is told of lost work is history alone."""
        newest = self._batch.generation == job.generation
        return newest and job_lifecycle.step_set_back_to(job.progress, self._batch.generation) is None


async def _left_at(session: AsyncSession, job: JobRow, generation: int) -> tuple[int, str]:
    """The step of this generation from which its job went on without it, and why the job did."""
    set_back_to = job_lifecycle.step_set_back_to(job.progress, generation)
    if set_back_to is not None and generation == job.generation:  # the next one has not begun yet
        return set_back_to, f"the job was set back after generation {generation}"
    began = await job_rows.least_start_step(session, job.id, after=generation)
    step = began if set_back_to is None else min(began, set_back_to)
    return step, f"generation {generation} was fenced off by generation {job.generation}"


def _moment(time: float) -> datetime:
    """The time of an event; now, where the rank's clock gives an impossible time."""
    return datetime.fromtimestamp(time, UTC) if 0 <= time <= MAX_TIME else datetime.now(UTC)


def _first_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The first metrics of an event that has more than its history needs, with short names."""
    return {name[:CONFIG_CHARACTERS]: value for name, value in list(metrics.items())[:MOST_METRICS]}


Told = TypeVar("Told", bound=msgspec.Struct)
Handler = Callable[[ReportedEvents, RankEvent], Awaitable[None]]


def _reads(shape: type[Told], apply: Callable[[ReportedEvents, Told], Awaitable[None]]) -> Handler:
    """A handler that reads the event's data as `shape`. It raises msgspec.ValidationError for data of another shape."""
    return lambda reported, event: apply(reported, msgspec.convert(event.data, shape, strict=False))


#: By kind.
HANDLERS: Mapping[str, Handler] = {
    "checkpoint_committed": _reads(CheckpointCommitted, ReportedEvents.checkpoint_committed),
    "checkpoint_damaged": _reads(Damaged, ReportedEvents.checkpoint_damaged),
    "checkpoint_restored": _reads(Restored, ReportedEvents.checkpoint_restored),
    "checkpoint_failed": _reads(CheckpointFailed, ReportedEvents.checkpoint_failed),
    "evaluated": _reads(Evaluated, ReportedEvents.evaluated),
    "sample": _reads(Sample, ReportedEvents.sample),
    "carried_on": _reads(CarriedOn, ReportedEvents.carried_on),
    "micro_batch_found": _reads(MicroBatchFound, ReportedEvents.micro_batch_found),
    "bad_loss": _reads(BadLossReport, ReportedEvents.bad_loss),
    "curves_found": ReportedEvents.curves_found,
    "file_saved": _reads(FileSaved, ReportedEvents.file_saved),
    "run_configured": _reads(RunConfig, ReportedEvents.run_configured),
    "communication_chosen": _reads(CommunicationReport, ReportedEvents.communication_chosen),
    "data_dropped": _reads(DataDropped, ReportedEvents.data_dropped),
}


async def apply(room: HistoryRoom, session: AsyncSession, node: NodeRow, batch: RankBatch, event: RankEvent) -> str | None:
    """Bring one rank event into the rows. The caller makes sure that it comes once, and that the job exists. Returns why the history has no
    entry of it; None: it has one, or needs none.

    An unreadable event is noted and passed over: kept back, it would hold up all later events of the rank."""
    event = msgspec.structs.replace(event, data=without_nul(event.data))
    reported = ReportedEvents(session, node, batch, _moment(event.time), room)
    try:
        await HANDLERS[event.kind](reported, event)
    except msgspec.ValidationError as error:
        data = {"kind": event.kind, "seq": event.seq}
        await reported.note("rank.event_unreadable", str(error), f"a {event.kind} event cannot be read", data)
    return reported.left_out
