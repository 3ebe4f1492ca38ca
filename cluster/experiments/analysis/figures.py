"""The figures of a trial, which of its trials tell them, and how sentences call them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cluster.experiments.analysis.statistics import usable
from paceline.cluster.experiments.best_trial import COUNTED
from paceline.cluster.experiments.facts import TrialFacts, TrialState
from paceline.cluster.experiments.spec import ExperimentSpec

#: Speed and memory are known once a trial steps steadily; what a whole run has cost or reached, only of one that is through.
_STEADY = COUNTED
_WHOLE: frozenset[TrialState] = frozenset({"completed"})
WHOLE_FIGURES = ("goodput", "slot_hours", "energy_joules", "metric")
STEADY_FIGURES = (
    "step_seconds",
    "samples_per_second",
    "tokens_per_second",
    "exposed_communication",
    "bytes_per_step",
    "bubble",
    "peak_memory_bytes",
)
FIGURES = (*STEADY_FIGURES, *WHOLE_FIGURES)
#: A step takes time and memory; a metric may be anything; all else may be nothing, but not less.
_POSITIVE = frozenset({"step_seconds", "samples_per_second", "tokens_per_second", "peak_memory_bytes"})
_ANY_SIGN = frozenset({"metric"})


@dataclass(frozen=True)
class ComparedFigure:
    """A figure by which configurations are compared with each other."""

    name: str
    more: str  # in `9 % more samples per second`
    less: str
    noun: str
    one_seed: bool = False  # repeats are the same run again: their agreement tells nothing of other seeds, and no test can


def compared_figures(spec: ExperimentSpec) -> tuple[ComparedFigure, ...]:
    """Return the figures that an experiment's configurations are compared by."""
    return (
        ComparedFigure("samples_per_second", "more", "fewer", "samples per second"),
        ComparedFigure("peak_memory_bytes", "more", "less", "peak memory"),
        ComparedFigure("metric", "higher", "lower", f"final {spec.metric.name}", one_seed=not spec.vary_seed),
    )


def is_measured(trial: TrialFacts) -> bool:
    """Tell whether a trial's state leaves figures of its steps that count."""
    return trial.state in _STEADY


def figure_of(trial: TrialFacts, name: str) -> float | None:
    """Return a figure of a trial; None where it is unknown, no possible value, or not to be counted in the trial's state."""
    value: float | None = usable(getattr(trial, name)) if trial.state in (_WHOLE if name in WHOLE_FIGURES else _STEADY) else None
    if value is None or name in _ANY_SIGN:
        return value
    return None if value < 0 or (value == 0 and name in _POSITIVE) else value


def figures_of(trials: Sequence[TrialFacts], name: str) -> list[float]:
    """Return the known values of a figure, in order of size: the order of the trials tells nothing."""
    return sorted(value for trial in trials if (value := figure_of(trial, name)) is not None)
