"""Experiments as clients see them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from paceline.api.schemas.common import Actor, FieldError, Reason, Schema, Timestamp
from paceline.cluster.experiments.facts import TrialState
from paceline.cluster.experiments.findings import Analysis, Sentence
from paceline.cluster.states import EndReason, JobState

#: `stopped`: its budget is used up; trials that are left can go on with a larger one.
ExperimentState = Literal["running", "paused", "completed", "stopped", "cancelled"]


class TrialCounts(Schema):
    total: int = Field(description="those included that a search has not drawn yet")
    refused: int = Field(description="configurations that the planner does not take; never run")
    waiting: int = Field(description="their jobs are queued, or not submitted yet, or not drawn yet by the search")
    running: int
    paused: int
    completed: int
    failed: int
    cancelled: int
    pruned: int = Field(description="stopped early by the halving")


class TrialJob(Schema):
    """The job of a trial, as a table of trials shows it."""

    id: str
    name: str
    state: JobState
    end_reason: EndReason | None
    step: int
    total_steps: int | None
    loss: float | None
    samples_per_second: float | None = Field(description="median of the steps by now, without the first ones, which warm up")


class Trial(Schema):
    index: int
    values: dict[str, Any] = Field(description="by path, with world_size where there are world sizes")
    repeat: int
    baseline: bool
    state: TrialState
    refusal: str | None = Field(description="why the planner does not take this configuration")
    job: TrialJob | None
    metric: float | None = Field(description="the experiment's metric at its last step; null: none yet, or not finite")
    metric_step: int = Field(description="step of its job when metric and speed were read: that of the job once nothing is missing in them")
    reused: bool = Field(description="its job ran for the same configuration before the experiment was posted again")


class ExperimentSummary(Schema):
    id: str
    name: str
    project: str
    description: str
    labels: dict[str, str]
    state: ExperimentState
    created_by: Actor
    created_at: Timestamp
    ended_at: Timestamp | None
    axes: list[str] = Field(description="what varies: paths, and world_size")
    trials: TrialCounts
    seconds_left: float | None = Field(description="estimate from the trials that ended; null: none has, or it rests")
    slot_hours: float = Field(description="used so far")
    best_trial: int | None = Field(
        description="index of the trial with the best metric at its last step; of a halving, at the highest rung"
    )
    best_metric: float | None = Field(description="the metric of that trial")
    revision: int


class Experiment(ExperimentSummary):
    spec: dict[str, Any]
    waits_for: Reason | None = Field(description="why no trial runs")
    headline: Sentence | None = Field(description="the recommendation of the newest analysis; null: not analyzed yet")
    analyzed_at: Timestamp | None


class ExperimentPlan(Schema):
    """The trials that a spec comes to, none of which has run."""

    trials: int
    refused: int
    axes: list[str]
    configurations: list[PlannedConfiguration]
    not_planned: int = Field(
        0, description="the last so many configurations, which the planner was not asked about: a plan of so many takes long"
    )
    seconds: float | None = Field(description="estimate with the slots of today; null: no time of a step is known")
    by_earlier_jobs: bool = Field(False, description="the estimate goes by other jobs of the same model and data, since no trial has ended")
    slot_hours: float | None
    errors: list[FieldError] = Field([], description="what is wrong with the job spec that all begin with")
    replaces: ReplacedExperiment | None = Field(None, description="the experiment of this project and name that would get this grid")


class ReplacedExperiment(Schema):
    """An experiment that is there already, and would get the grid that is planned."""

    id: str
    created_by: Actor
    cancels: int = Field(description="its trials that the new grid lacks and whose jobs have not ended: they would be cancelled")


class PlannedConfiguration(Schema):
    values: dict[str, Any]
    world_size: int
    repeats: int
    baseline: bool
    refusal: str | None
    memory_bytes: int | None = Field(description="estimate for the fullest rank")


class ExtendRequest(Schema):
    """A trial to run longer, and how long."""

    steps: int = Field(ge=1, description="train to this many steps, those that are done counted")
    trial: int | None = Field(None, ge=0, lt=1 << 31, description="index of the trial; default: the best one so far")
    name: str | None = Field(None, description="of the new job; default: the trial's job's name with -longer")


class ExperimentAnalysis(Schema):
    experiment_id: str
    made_at: Timestamp
    complete: bool = Field(description="no trial can still change it")
    seconds: float = Field(description="that the analysis took")
    analysis: Analysis


ExperimentPlan.model_rebuild()
