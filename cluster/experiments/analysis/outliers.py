"""Trials that are far from the other repeats of their configuration. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials
from paceline.cluster.experiments.analysis.figures import figure_of
from paceline.cluster.experiments.analysis.statistics import median
from paceline.cluster.experiments.analysis.words import percent
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.findings import Outlier

#: What is looked at: (figure, words for too much of it, words for too little).
LOOKED_AT = (
    ("step_seconds", "slower", "faster"),
    ("peak_memory_bytes", "fuller", "emptier"),
    ("metric", "higher in the metric", "lower in the metric"),
)
#: Times the spread of all repeats of the experiment, and at least this share of the median. Of experiments with normal noise and no outlier
#: one in thirty has a trial that is so far.
SPREADS, LEAST_SHARE = 5.0, 0.03
#: Fewer deviations do not tell a spread.
LEAST_DEVIATIONS = 4
#: Makes the median absolute deviation the standard deviation of normally distributed values.
_NORMAL = 1.4826
#: With one or two repeats nothing says which one is wrong.
LEAST_REPEATS = 3


@dataclass(frozen=True)
class RepeatDeviation:
    trial: TrialFacts
    label: str
    value: float
    median: float

    @property
    def share(self) -> float:
        return self.value / self.median - 1

    @property
    def distance(self) -> float:
        return self.value - self.median


def outliers(configurations: Sequence[RepeatedTrials]) -> list[Outlier]:
    """Return the outlying trials, figure by figure, each beside the median of its configuration.

    The spread is the median absolute deviation over the repeats of all configurations: three repeats of one configuration tell little, those of
    all tell what is usual on these machines. Deviations are relative to the median of the configuration. Noise of a metric may or may not grow
    with the metric, so there a trial has to be far in absolute numbers too.
    """
    return [_outlier(name, each, more, less) for name, more, less in LOOKED_AT for each in _outlying(name, configurations)]


def _outlying(figure: str, configurations: Sequence[RepeatedTrials]) -> list[RepeatDeviation]:
    by_configuration = [_deviations(figure, each) for each in configurations]
    share = _spread([[each.share for each in deviations] for deviations in by_configuration])
    if share is None:
        return []
    distance = _spread([[each.distance for each in deviations] for deviations in by_configuration]) if figure == "metric" else None
    return [
        each
        for deviations in by_configuration
        for each in deviations
        if abs(each.share) > max(SPREADS * share, LEAST_SHARE) and abs(each.distance) > SPREADS * (distance or 0)
    ]


def _deviations(figure: str, configuration: RepeatedTrials) -> list[RepeatDeviation]:
    known = configuration.figures[figure]
    if len(known) < LEAST_REPEATS or median(known) <= 0:
        return []
    values = [(trial, figure_of(trial, figure)) for trial in configuration.trials]
    return [RepeatDeviation(trial, configuration.label, value, median(known)) for trial, value in values if value is not None]


def _spread(by_configuration: Sequence[Sequence[float]]) -> float | None:
    """The spread of one repeat; None: too few to tell.

    The smallest deviation of each configuration is left out: of an odd number of repeats one is the median itself, of an even number the middle
    two are equally near. What is left has the median of normal noise, from three repeats up.
    """
    told = [deviation for deviations in by_configuration for deviation in sorted(map(abs, deviations))[1:]]
    return _NORMAL * median(told) if len(told) >= LEAST_DEVIATIONS else None


def _outlier(figure: str, deviation: RepeatDeviation, more: str, less: str) -> Outlier:
    words = f"{percent(abs(deviation.share))} {more if deviation.share > 0 else less}"
    return Outlier(
        trial=deviation.trial.index,
        job_id=deviation.trial.job_id,
        figure=figure,
        value=deviation.value,
        median=deviation.median,
        text=f"Trial {deviation.trial.index} ({deviation.label}, repeat {deviation.trial.repeat + 1}) is {words} than the median of its repeats.",
    )
