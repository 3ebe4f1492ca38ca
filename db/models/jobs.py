"""Jobs, their generations and the ranks of each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ForeignKey, ForeignKeyConstraint, Index, and_, false, or_
from sqlalchemy.orm import Mapped, mapped_column

from paceline.cluster.states import ACTIVE_JOB_STATES, EndReason, Intent, JobState, RankState
from paceline.db.base import BigInt, ControlBase, JsonDocument, TextEnum, UtcDateTime, constants, new_id, partial_index
from paceline.db.specs import SpecDocument
from paceline.training.spec.stored import StoredSpec


def search_text(name: str, spec: StoredSpec, labels: Mapping[str, str], notes: str) -> str:
    """The text in which a search for a job looks: its name, description, labels and notes, all in one case."""
    description = spec.part("description") or ""
    return "\n".join([name, str(description), *(f"{key}={value}" for key, value in labels.items()), notes]).casefold()


def _first_search_text(context: Any) -> str:
    row = context.get_current_parameters()
    return search_text(row["name"], row["spec"], row.get("labels") or {}, row.get("notes") or "")


def _first_model(context: Any) -> str:
    spec: StoredSpec = context.get_current_parameters()["spec"]
    return spec.model


class JobRow(ControlBase):
    """A submitted job. `version` is the revision clients see as ETag: it grows with every change of state or intent."""

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str]
    project: Mapped[str]
    priority: Mapped[int]
    labels: Mapped[dict[str, str]] = mapped_column(JsonDocument, default=dict)
    state: Mapped[JobState] = mapped_column(TextEnum(JobState))
    desired: Mapped[Intent] = mapped_column(TextEnum(Intent), default=Intent.RUN)
    end_reason: Mapped[EndReason | None] = mapped_column(TextEnum(EndReason))
    pending: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    spec: Mapped[StoredSpec] = mapped_column(SpecDocument)
    world_size: Mapped[int]
    generation: Mapped[int] = mapped_column(BigInt, default=0)
    restarts: Mapped[int] = mapped_column(default=0)
    version: Mapped[int] = mapped_column(BigInt, default=1)
    restored_from: Mapped[str | None]
    failure: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    progress: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    created_by: Mapped[str]  # a name, for people;
    created_by_id: Mapped[str | None]  # the user it belongs to. None: submitted by nobody who is a user, so it is the admins'
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    queued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    state_since: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: How long its generations that have ended held slots, less the steps of the coordinator's clock during the one that has not.
    ran_seconds: Mapped[float] = mapped_column(default=0.0, server_default="0")
    #: What it trains, by which lists are filtered: see `StoredSpec.model`.
    model: Mapped[str] = mapped_column(default=_first_model, server_default="unknown")
    notes: Mapped[str] = mapped_column(default="", server_default="")
    #: The digest of the bundle that its ranks run: it is kept as long as the job. None: their code is on the nodes.
    bundle: Mapped[str | None] = mapped_column(index=True)
    #: When it was put out of sight. None: lists show it.
    archived_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Only queries look at it, so rows are read without it.
    search_text: Mapped[str] = mapped_column(default=_first_search_text, server_default="", deferred=True)

    __table_args__ = (
        Index(None, "state"),
        Index("ix_jobs_state_desired", "state", "desired", "id", "version"),
        Index(None, "created_at", "id"),
        Index(None, "name", "id"),
        Index(None, "priority", "id"),
        # What filters ask for, so that counting the jobs that match reads no rows, in which specs are the most.
        Index("ix_jobs_listed", "archived_at", "created_at", "id", "project", "created_by", "model", "state"),
    )


class GenerationRow(ControlBase):
    __tablename__ = "generations"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    world_size: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    first_step_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    first_step: Mapped[int | None] = mapped_column(BigInt)  # the first that its rank 0 told of
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    end_reason: Mapped[EndReason | None] = mapped_column(TextEnum(EndReason))
    hang: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)  # cluster.quiet.Suspicion, while it seems to hang
    start_step: Mapped[int] = mapped_column(BigInt, default=0)
    restored_checkpoint_id: Mapped[str | None]
    store_token: Mapped[str]
    #: The one before it was well: its ranks leave that one after a step that they agree on.
    at_boundary: Mapped[bool] = mapped_column(default=False, server_default=false())


class RankRow(ControlBase):
    """Ranks from the generation's `world_size` on are `parked`: they hold a slot, and wait for a place in a newer generation."""

    __tablename__ = "ranks"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    slot: Mapped[int]
    #: The driver's index of the card behind the slot when its agent took the rank up. None: a CPU slot, or nothing was reported yet.
    card: Mapped[int | None]
    local_rank: Mapped[int]
    node_rank: Mapped[int]
    state: Mapped[RankState] = mapped_column(TextEnum(RankState), default=RankState.ASSIGNED)
    born_generation: Mapped[int | None] = mapped_column(BigInt)  # its process was started as this rank of that generation;
    born_rank: Mapped[int | None]  # both empty: as this one
    parked: Mapped[bool] = mapped_column(default=False, server_default=false())
    #: It was parked until now, so it has no part yet in what was trained.
    newcomer: Mapped[bool] = mapped_column(default=False, server_default=false())
    pid: Mapped[int | None]
    step: Mapped[int] = mapped_column(BigInt, default=0)
    total_steps: Mapped[int | None] = mapped_column(BigInt)
    progress_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    exit_code: Mapped[int | None]
    signal: Mapped[str | None]
    outcome: Mapped[str | None]
    failure: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    stall: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)  # training.link.Stalled, while it is
    suspended: Mapped[bool] = mapped_column(default=False, server_default=false())  # its process is stopped by a signal
    quiet_since: Mapped[datetime | None] = mapped_column(UtcDateTime)  # of a script: no output and no step since, for its patience
    drained: Mapped[bool] = mapped_column(default=False)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        ForeignKeyConstraint(["job_id", "generation"], ["generations.job_id", "generations.generation"]),
        Index(None, "node_id", "state"),
    )


class RankStacksRow(ControlBase):
    """The newest requested Python stacks of a rank. Apart from `ranks`, which loops read again and again."""

    __tablename__ = "rank_stacks"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_id: Mapped[str]
    request: Mapped[str]
    asked_at: Mapped[datetime] = mapped_column(UtcDateTime)
    answered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    answer: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)  # cluster.stacks.StackSample

    __table_args__ = (ForeignKeyConstraint(["job_id", "generation"], ["generations.job_id", "generations.generation"]),)


class RankEventMarkRow(ControlBase):
    """The highest rank event applied: moved in the transaction that applies it, so each is applied exactly once."""

    __tablename__ = "rank_event_marks"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(BigInt)


# --- the rows that loops look at again and again, in indexes of their own (`db.base.partial_index`)

#: Jobs that may move by themselves: active, or asked to leave their pause or the queue.
UNDECIDED: ColumnElement[bool] = or_(
    JobRow.state.in_(constants(*ACTIVE_JOB_STATES)),
    and_(JobRow.state.in_(constants(JobState.PAUSED)), JobRow.desired.in_(constants(Intent.RUN, Intent.CANCEL))),
    and_(JobRow.state.in_(constants(JobState.QUEUED)), JobRow.desired.in_(constants(Intent.PAUSE, Intent.CANCEL))),
)
#: Jobs that only wait for slots.
WAITING: ColumnElement[bool] = and_(JobRow.state.in_(constants(JobState.QUEUED)), JobRow.desired.in_(constants(Intent.RUN)))
#: Ranks that hold a slot.
HOLDING: ColumnElement[bool] = RankRow.state.not_in(constants(RankState.EXITED, RankState.MOVED))
#: Ranks that are not yet confirmed gone with everything they left behind acknowledged: their node must still be told what to do with them.
OPEN: ColumnElement[bool] = or_(HOLDING, RankRow.drained.is_(False))
#: Ranks that came to their generation from being parked, or failed while parked.
JOINED_LATER: ColumnElement[bool] = or_(
    RankRow.newcomer.is_(True),
    and_(RankRow.parked.is_(True), RankRow.state.in_(constants(RankState.EXITED)), RankRow.outcome.in_(constants("failed"))),
)


partial_index("ix_ranks_open_of_node", OPEN, RankRow.node_id, RankRow.job_id, RankRow.generation, RankRow.rank)
partial_index("ix_ranks_open_of_job", OPEN, RankRow.job_id, RankRow.node_id)
partial_index("ix_ranks_joined_later", JOINED_LATER, RankRow.job_id, RankRow.updated_at)
partial_index("ix_jobs_restored_from", JobRow.restored_from.is_not(None), JobRow.restored_from)
