"""Losses for a figure: one trial of each configuration, thinned. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials
from paceline.cluster.experiments.analysis.convergence import curve_of
from paceline.cluster.experiments.analysis.statistics import usable
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.findings import Series

MOST_POINTS = 500
#: A figure with more curves cannot be read.
MOST_SERIES = 60


def loss_series(configurations: Sequence[RepeatedTrials], first: Sequence[int] = ()) -> list[Series]:
    """Return the losses of MOST_SERIES configurations at most, in the order of the grid; those of `first` are among them."""
    ordered = sorted(configurations, key=lambda each: (each.index not in first, not each.baseline, each.index))
    told = ((each, trial) for each in ordered if (trial := _told(each)) is not None)
    return [_series(each, trial) for each, trial in sorted(islice(told, MOST_SERIES), key=lambda found: found[0].index)]


def _told(configuration: RepeatedTrials) -> TrialFacts | None:
    """The first completed repeat that reported losses, or the first other one."""
    ordered = sorted(configuration.measured, key=lambda trial: (trial.state != "completed", trial.repeat))
    return next((trial for trial in ordered if curve_of(trial.series) is not None), None)


def _series(configuration: RepeatedTrials, trial: TrialFacts) -> Series:
    series = trial.series
    kept = thinned(len(series.losses))
    return Series(
        configuration=configuration.index,
        trial=trial.index,
        steps=[int(series.steps[at]) for at in kept],
        samples=[int(series.samples[at]) for at in kept],
        seconds=[float(series.times[at]) for at in kept],
        losses=[usable(float(series.losses[at])) for at in kept],
    )


def thinned(count: int) -> list[int]:
    """Return MOST_POINTS positions at most, evenly spread over `count`, the first and the last among them."""
    if count <= MOST_POINTS:
        return list(range(count))
    return [at * (count - 1) // (MOST_POINTS - 1) for at in range(MOST_POINTS)]
