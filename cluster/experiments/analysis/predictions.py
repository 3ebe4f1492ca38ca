"""What a cost model says of an experiment: its error on what was measured, and steps on more ranks than were. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials
from paceline.cluster.experiments.analysis.predictor import FittedPredictor, MeasuredConfiguration, PredictedStep, Predictor
from paceline.cluster.experiments.analysis.scaling import ScalingSeries
from paceline.cluster.experiments.analysis.statistics import median, usable
from paceline.cluster.experiments.findings import CostCheck, Prediction

PREDICTED_RANKS = (8, 16, 32, 64, 128, 256, 512, 1024)
#: Series that are extrapolated, in the order of the grid.
MOST_PREDICTED_SERIES = 12


@dataclass(frozen=True)
class CostModelFindings:
    step_seconds: Mapping[int, float] = field(default_factory=dict)  # of configurations, by index
    checks: Sequence[CostCheck] = ()
    predictions: Sequence[Prediction] = ()


def consult(predictor: Predictor | None, configurations: Sequence[RepeatedTrials], series: Sequence[ScalingSeries]) -> CostModelFindings:
    """Fit the cost model to all measured configurations; compare it with each, and extrapolate the series."""
    measured = [step for each in configurations if (step := measured_step(each)) is not None]
    fitted = predictor.fit(measured) if predictor is not None and measured else None
    if fitted is None:
        return CostModelFindings()
    steps = {each.index: _ask(fitted, each.trials[0].index, each.world_size) for each in configurations if not each.refusal}
    seconds = {index: step.step_seconds for index, step in steps.items() if step is not None}
    predictions = [found for each in series[:MOST_PREDICTED_SERIES] for found in _extrapolated(fitted, each)]
    return CostModelFindings(seconds, _checks(configurations, seconds), predictions)


def measured_step(configuration: RepeatedTrials) -> MeasuredConfiguration | None:
    """Return the medians of a configuration for the cost model; None where its time of a step is unknown."""
    seconds = _median(configuration, "step_seconds")
    if seconds is None or seconds <= 0:
        return None
    return MeasuredConfiguration(
        trial=configuration.trials[0].index,
        world_size=configuration.world_size,
        strategy=configuration.strategy,
        step_seconds=seconds,
        samples_per_second=_median(configuration, "samples_per_second"),
        parts=median_parts(configuration),
        bytes_per_step=_median(configuration, "bytes_per_step"),
        peak_memory_bytes=_median(configuration, "peak_memory_bytes"),
    )


def median_parts(configuration: RepeatedTrials) -> dict[str, float]:
    """Return the median seconds of each part of a step over the repeats that know it."""
    found: dict[str, list[float]] = {}
    for trial in configuration.measured:
        for name, seconds in trial.parts.items():
            if usable(seconds) is not None:
                found.setdefault(name, []).append(seconds)
    return {name: median(values) for name, values in found.items()}


def _median(configuration: RepeatedTrials, figure: str) -> float | None:
    values = configuration.figures[figure]
    return median(values) if values else None


def _ask(fitted: FittedPredictor, trial: int, ranks: int) -> PredictedStep | None:
    """The prediction of a step; None where there is none that can be reckoned with."""
    step = fitted.predict(trial, ranks)
    if step is None or usable(step.step_seconds) is None or usable(step.samples_per_second) is None:
        return None
    return step if step.step_seconds > 0 and step.samples_per_second > 0 else None


def _checks(configurations: Sequence[RepeatedTrials], seconds: Mapping[int, float]) -> list[CostCheck]:
    measured = {each.index: _median(each, "step_seconds") for each in configurations if each.index in seconds}
    return [
        CostCheck(configuration=index, measured_seconds=value, predicted_seconds=seconds[index], error=seconds[index] / value - 1)
        for index, value in measured.items()
        if value
    ]


def _extrapolated(fitted: FittedPredictor, series: ScalingSeries) -> list[Prediction]:
    """Steps of a series on more ranks than it was measured on; efficiency is against the model's own single process."""
    largest = series.members[-1]
    trial = largest.trials[0].index
    single = _ask(fitted, trial, 1)
    if single is None:
        return []
    asked = {ranks: _ask(fitted, trial, ranks) for ranks in PREDICTED_RANKS if ranks > largest.world_size}
    return [
        Prediction(
            configuration=largest.index,
            ranks=ranks,
            step_seconds=step.step_seconds,
            samples_per_second=step.samples_per_second,
            efficiency=step.samples_per_second / single.samples_per_second / ranks,
            peak_memory_bytes=usable(step.peak_memory_bytes),
            assumptions=step.assumptions,
        )
        for ranks, step in asked.items()
        if step is not None
    ]
