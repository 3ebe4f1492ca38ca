"""What an analysis says of an experiment. Frozen pydantic models: the API answers with them as they are. Every number is finite, or None."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class AnalysisPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True, allow_inf_nan=False)


class Estimate(AnalysisPart):
    """A median over repeats with a bootstrap interval; the interval is None where there is one value."""

    value: float
    low: float | None = Field(None, description="of the 95 % bootstrap interval of the median")
    high: float | None = None
    count: int = Field(description="trials that it is the median of")


class Pruned(AnalysisPart):
    """The rung at which a halving pruned trials of a configuration, of those that came furthest, and the metric there."""

    step: int = Field(description="at which they were pruned")
    metric: Estimate | None = Field(description="the experiment's metric at that step; None: not finite")


class Configuration(AnalysisPart):
    """One combination of values with all its repeats."""

    index: int = Field(description="in the order of the grid")
    label: str = Field(description="its varied values in words, as `fsdp, 2 ranks, batch 32`")
    values: dict[str, Any]
    world_size: int
    strategy: str
    baseline: bool
    trials: list[int] = Field(description="indices of its trials")
    completed: int
    refusal: str | None = None
    step_seconds: Estimate | None = None
    samples_per_second: Estimate | None = None
    tokens_per_second: Estimate | None = None
    speedup: Estimate | None = Field(
        None, description="over the single process of the same other values (for weak scaling of the samples per second)"
    )
    efficiency: Estimate | None = Field(None, description="speedup over the number of ranks; 1 is ideal")
    peak_memory_bytes: Estimate | None = None
    exposed_communication: Estimate | None = Field(None, description="share of a step")
    bytes_per_step: Estimate | None = None
    bubble: Estimate | None = None
    goodput: Estimate | None = None
    slot_hours: Estimate | None = None
    energy_joules: Estimate | None = None
    metric: Estimate | None = Field(None, description="the experiment's metric at the last step of the trials that completed")
    pruned: Pruned | None = Field(None, description="of the trials that the halving stopped early; None: there are none")
    parts: dict[str, float] = Field({}, description="seconds of a step by name, medians over the repeats")
    pareto: bool = Field(False, description="no other configuration is better in speed, peak memory and the metric at once")
    predicted_step_seconds: float | None = Field(None, description="of the cost model, fitted to all trials; None: it has no prediction")


class FigureDifference(AnalysisPart):
    """Two configurations that differ in one value, compared in one figure."""

    first: int = Field(description="index of a configuration")
    second: int
    path: str = Field(description="the value that differs")
    figure: str = Field(description="samples_per_second, peak_memory_bytes, metric, ...")
    ratio: float = Field(description="second over first")
    p_value: float | None = Field(
        description="of a permutation test, corrected for the number of comparisons in this figure (Holm 1979); None: too few repeats"
    )
    is_difference: bool = Field(description="p under 0.05 after the correction")
    text: str


class Effect(AnalysisPart):
    """A value instead of another one, in all pairs of configurations that differ in nothing else: more pairs show what few repeats cannot."""

    path: str
    first: Any = Field(description="value of the path; for columns that change together the values, in the order of the paths")
    second: Any
    figure: str
    pairs: list[tuple[int, int]] = Field(description="indices of the compared configurations")
    ratio: float = Field(description="second over first: the median of the pairs' ratios of medians")
    smallest_ratio: float
    largest_ratio: float
    p_value: float | None = Field(description="of a permutation test within the pairs, corrected by Holm; None: too few repeats and pairs")
    is_difference: bool = Field(description="p under 0.05 after the correction")
    text: str


class Outlier(AnalysisPart):
    trial: int
    job_id: str | None
    figure: str
    value: float
    median: float
    text: str


class Fit(AnalysisPart):
    """A law fitted by least squares of the relative errors: to configurations that are equal in all but the number of ranks, alpha_beta to all of
    one strategy.

    Of amdahl, `measured` and `fitted` are seconds of a step, of gustafson samples per second, of alpha_beta seconds of exposed communication.
    """

    law: Literal["amdahl", "gustafson", "alpha_beta"]
    series: str
    parameters: dict[str, float] = Field(description="amdahl, gustafson: serial_share; alpha_beta: latency_seconds, bytes_per_second")
    ranks: list[int]
    measured: list[float]
    fitted: list[float]
    worst_residual: float = Field(description="largest |fitted / measured - 1|")
    text: str


class Convergence(AnalysisPart):
    """The loss of a configuration beside that of the single process with the same other values."""

    configuration: int
    reference: int
    at_samples: int = Field(description="samples that both have seen; losses are means over the last tenth of them, medians over repeats")
    loss: float
    reference_loss: float
    at_seconds: float | None = Field(None, description="training time that both have had")
    loss_at_time: float | None = None
    reference_loss_at_time: float | None = None
    same: bool = Field(description="equal to rounding at equal samples")
    text: str


class Prediction(AnalysisPart):
    """The cost model's time of a step on machines that were not measured."""

    configuration: int = Field(description="of the same strategy and values, measured here")
    ranks: int
    step_seconds: float
    samples_per_second: float
    efficiency: float
    peak_memory_bytes: float | None = None
    assumptions: str


class CostCheck(AnalysisPart):
    """The cost model beside a configuration that was measured."""

    configuration: int
    measured_seconds: float
    predicted_seconds: float
    error: float = Field(description="predicted / measured - 1")


class Sentence(AnalysisPart):
    """A sentence of the interpretation."""

    kind: Literal["recommendation", "finding", "doubt"]
    text: str
    configurations: list[int] = []


class Series(AnalysisPart):
    """Losses of one configuration, thinned to at most 500 points for a figure."""

    configuration: int
    trial: int
    steps: list[int]
    samples: list[int]
    seconds: list[float]
    losses: list[float | None]


class Analysis(AnalysisPart):
    trials: int
    completed: int
    failed: int
    ended: int = Field(0, description="trials that have run and change no more: completed, failed, pruned or cancelled")
    refused: int
    axes: list[str] = Field(description="paths that vary, with `world_size`; the table's columns")
    configurations: list[Configuration]
    best: int | None = Field(None, description="the configuration that is recommended")
    best_trial: int | None = Field(None, description="the trial with the best metric at its last step, as the experiment has it")
    slot_hours: float | None = Field(None, description="of all trials, whatever became of them; null: none has held slots")
    energy_joules: float | None = Field(None, description="of the cards of all trials that have held slots; null: that of one is unknown")
    differences: list[FigureDifference] = Field([], description="at most 300: those that are differences first, then by size")
    effects: list[Effect] = []
    outliers: list[Outlier] = []
    fits: list[Fit] = []
    convergence: list[Convergence] = []
    cost_checks: list[CostCheck] = []
    predictions: list[Prediction] = []
    sentences: list[Sentence] = []
    series: list[Series] = []
