"""Experiments, their trials, and what the newest analysis of each found."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, false, true
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, JsonDocument, OrderedDocument, UtcDateTime, new_id


class ExperimentRow(ControlBase):
    """`version` is the revision that clients see: it grows with every change of state or spec. One transaction at a time changes an experiment and its
    trials: it locks this row."""

    __tablename__ = "experiments"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str]
    project: Mapped[str]
    labels: Mapped[dict[str, str]] = mapped_column(JsonDocument, default=dict)
    state: Mapped[str]  # cluster.experiments.schedule.ExperimentState
    spec: Mapped[dict[str, Any]] = mapped_column(OrderedDocument)
    axes: Mapped[list[str]] = mapped_column(JsonDocument)
    created_by: Mapped[str]  # a name, for people
    created_by_id: Mapped[str | None]  # the user whom it and its jobs belong to
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    state_since: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    state_why: Mapped[str] = mapped_column(default="", server_default="")
    #: The seconds of its earlier times in the state `running`, less the steps of the coordinator's clock during this one.
    ran_seconds: Mapped[float] = mapped_column(default=0.0, server_default="0")
    #: The slot-seconds of jobs that its trials had before they ran anew.
    former_slot_seconds: Mapped[float] = mapped_column(default=0.0, server_default="0")
    #: Nothing is to be done until somebody asks for something: the loop leaves it alone.
    settled: Mapped[bool] = mapped_column(default=False, server_default=false())
    best_trial: Mapped[int | None]  # index of the trial with the best metric
    best_metric: Mapped[float | None]
    version: Mapped[int] = mapped_column(BigInt, default=1)

    __table_args__ = (
        UniqueConstraint("project", "name"),
        Index(None, "settled"),
        Index(None, "created_at", "id"),
        Index(None, "name", "id"),
    )


class TrialRow(ControlBase):
    """One configuration, one repeat. Its state is that of its job, where it has one: see `services.experiments.trial_states`."""

    __tablename__ = "trials"

    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiments.id"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key: Mapped[str]  # of the configuration and the repeat
    configuration: Mapped[int]  # in the order of the grid
    repeat: Mapped[int]
    values: Mapped[dict[str, Any]] = mapped_column(OrderedDocument)
    world_size: Mapped[int]
    baseline: Mapped[bool] = mapped_column(default=False, server_default=false())
    document: Mapped[dict[str, Any]] = mapped_column(OrderedDocument, deferred=True)  # the job spec, as it is submitted
    refusal: Mapped[str | None]
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    #: False: the experiment was posted again without it.
    in_grid: Mapped[bool] = mapped_column(default=True, server_default=true())
    reused: Mapped[bool] = mapped_column(default=False, server_default=false())
    cancelled: Mapped[bool] = mapped_column(default=False, server_default=false())  # before it had a job
    pruned: Mapped[bool] = mapped_column(default=False, server_default=false())
    paused_for: Mapped[str | None]  # why the experiment paused its job
    rungs: Mapped[list[dict[str, Any]]] = mapped_column(JsonDocument, default=list)  # cluster.experiments.facts.Rung
    metric: Mapped[float | None]  # the experiment's metric at its last step; NULL also: not finite
    samples_per_second: Mapped[float | None]  # median of its steps after those that warm up
    metric_step: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")  # of its job when they were read
    metric_is_final: Mapped[bool] = mapped_column(default=False, server_default=false())  # its job rested at that step, or had ended

    __table_args__ = (UniqueConstraint("experiment_id", "key"), Index(None, "job_id"))


class ExperimentAnalysisRow(ControlBase):
    """The newest analysis. Apart from `experiments`, which the loop reads again and again."""

    __tablename__ = "experiment_analyses"

    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiments.id"), primary_key=True)
    made_at: Mapped[datetime] = mapped_column(UtcDateTime)
    complete: Mapped[bool]  # no trial can still change it
    seconds: Mapped[float]  # that the analysis took
    analysis: Mapped[dict[str, Any]] = mapped_column(OrderedDocument)  # cluster.experiments.findings.Analysis
