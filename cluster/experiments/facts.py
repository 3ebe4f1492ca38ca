"""What is known of an experiment's trials: the input of its schedule and of its analysis. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.cluster.states import EndReason, JobState

#: `refused`: the planner does not take the configuration; `waiting`: no job yet; `running`: its job is not at its end and not paused;
#: `paused`: at a rung, or with the experiment; the others as the job's state.
TrialState = Literal["refused", "waiting", "running", "paused", "completed", "failed", "cancelled", "pruned"]


@dataclass(frozen=True)
class Cell:
    """One configuration, and which repeat of it."""

    index: int  # in the order of the grid, from 0
    key: str  # of the configuration and the repeat: the same for the same work, in any experiment
    values: Mapping[str, Any]  # by path, with `world_size` where there are world sizes
    repeat: int  # from 0
    document: Mapping[str, Any]  # the job spec of this trial
    baseline: bool = False  # added as the single process to compare with
    refusal: str | None = None  # why the planner does not take it; None: it does
    world_size: int = 1


@dataclass(frozen=True)
class Rung:
    """A step at which a trial of a halving paused, with the metric there."""

    steps: int
    value: float | None  # None: not finite


@dataclass(frozen=True)
class StepSeries:
    """The reports of rank 0, committed steps only; the lists are equally long."""

    steps: Sequence[int] = ()
    seconds: Sequence[float] = ()  # of each step, from end to end
    losses: Sequence[float] = ()
    samples: Sequence[int] = ()  # cumulative
    times: Sequence[float] = ()  # seconds since training began, without pauses and queues


@dataclass(frozen=True)
class TrialFacts:
    """Everything that is known of one trial. Figures are of its steady part: without the first steps, which warm up."""

    index: int
    values: Mapping[str, Any]
    repeat: int
    baseline: bool
    state: TrialState
    world_size: int
    strategy: str
    job_id: str | None = None
    refusal: str | None = None
    end_reason: EndReason | None = None
    job_state: JobState | None = None
    series: StepSeries = field(default_factory=StepSeries)
    step_seconds: float | None = None  # median
    samples_per_second: float | None = None  # global batch over step_seconds
    tokens_per_second: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of a step by name: data, forward, backward, communication, ...
    exposed_communication: float | None = None  # share of the step
    bytes_per_step: float | None = None  # that the busiest rank sends
    bubble: float | None = None  # share of the step
    peak_memory_bytes: float | None = None  # of the fullest rank
    goodput: float | None = None  # share of the time in which slots were held
    slot_hours: float | None = None
    energy_joules: float | None = None
    machines: int | None = None  # distinct hosts of its ranks, however many agents they have; None: not known
    metric: float | None = None  # the experiment's metric at the last step
    rungs: Sequence[Rung] = ()  # of a halving, those that it has reached
    started_at: float | None = None  # seconds since the epoch
    ended_at: float | None = None
    derived: Mapping[str, Any] = field(default_factory=dict)  # by path, what its job spec leaves to be derived, such as the micro-batch
