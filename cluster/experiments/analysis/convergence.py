"""The loss of each configuration beside that of its single process, at equal samples and at equal training time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials
from paceline.cluster.experiments.analysis.statistics import ROUNDING, Floats, median, usable
from paceline.cluster.experiments.analysis.words import duration, number, percent
from paceline.cluster.experiments.facts import StepSeries, TrialFacts
from paceline.cluster.experiments.findings import Convergence

#: Losses of single steps are noisy: means over this last share of the samples or of the time are compared.
WINDOW = 0.1


@dataclass(frozen=True)
class LossesOfTrial:
    """Losses over samples and over seconds of training, in increasing order."""

    samples: Floats
    seconds: Floats
    losses: Floats

    def at(self, axis: Floats, end: float) -> float | None:
        """Return the mean loss over the last tenth before `end` on this axis; None before the first report, or if it is not finite."""
        last = int(np.searchsorted(axis, end, side="right"))
        first = min(int(np.searchsorted(axis, end * (1 - WINDOW), side="right")), last - 1)
        if last == 0:
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            return usable(float(self.losses[first:last].mean()))


@dataclass(frozen=True)
class LossPair:
    """Two losses at one place."""

    own: float
    reference: float


def convergence(configurations: Sequence[RepeatedTrials], references: Mapping[int, RepeatedTrials]) -> list[Convergence]:
    """Return the comparison of each configuration's losses with those of its single process, where both told finite ones."""
    curves = {each.index: _curves(each) for each in configurations}
    compared = [(each, references[each.index]) for each in configurations if each.index in references]
    found = [_compare(own, single, curves[own.index], curves[single.index]) for own, single in compared if own is not single]
    return [each for each in found if each is not None]


def curve_of(series: StepSeries) -> LossesOfTrial | None:
    """Return a trial's losses; None where it has reported none, or not finite samples and times beside them."""
    count = len(series.losses)
    if not count or len(series.samples) != count or len(series.times) != count:
        return None
    samples, seconds, losses = (np.asarray(each, dtype=np.float64) for each in (series.samples, series.times, series.losses))
    return LossesOfTrial(samples, seconds, losses) if np.isfinite(samples).all() and np.isfinite(seconds).all() else None


def first_and_last_loss(trial: TrialFacts) -> tuple[float, float] | None:
    """Return the mean losses of the first and of the last tenth of a trial's reports; None for fewer than two reports, or ones that are not finite."""
    losses = np.asarray(trial.series.losses, dtype=np.float64)
    if len(losses) < 2 or not np.isfinite(losses).all():
        return None
    width = max(1, round(WINDOW * len(losses)))
    first, last = usable(float(losses[:width].mean())), usable(float(losses[-width:].mean()))
    return None if first is None or last is None else (first, last)


def _curves(configuration: RepeatedTrials) -> dict[int, LossesOfTrial]:
    """By repeat, since repeats may have seeds of their own."""
    found: dict[int, LossesOfTrial] = {}
    for trial in configuration.measured:
        curve = curve_of(trial.series)
        if curve is not None:
            found.setdefault(trial.repeat, curve)
    return found


def _compare(
    own: RepeatedTrials, single: RepeatedTrials, curves: Mapping[int, LossesOfTrial], singles: Mapping[int, LossesOfTrial]
) -> Convergence | None:
    pairs = [(curves[repeat], singles[repeat]) for repeat in sorted(curves.keys() & singles.keys())]
    if not pairs:
        return None
    samples = min(float(curve.samples[-1]) for pair in pairs for curve in pair)
    seconds = min(float(curve.seconds[-1]) for pair in pairs for curve in pair)
    at_samples = _medians([(one.at(one.samples, samples), other.at(other.samples, samples)) for one, other in pairs])
    at_time = _medians([(one.at(one.seconds, seconds), other.at(other.seconds, seconds)) for one, other in pairs])
    if at_samples is None:
        return None
    return Convergence(
        configuration=own.index,
        reference=single.index,
        at_samples=int(samples),
        loss=at_samples.own,
        reference_loss=at_samples.reference,
        at_seconds=seconds if at_time else None,
        loss_at_time=at_time.own if at_time else None,
        reference_loss_at_time=at_time.reference if at_time else None,
        same=_is_same(at_samples),
        text=_text(own.label, int(samples), at_samples, seconds, at_time) + _doubt(at_samples, len(pairs)),
    )


def _medians(losses: Sequence[tuple[float | None, float | None]]) -> LossPair | None:
    known = [(own, reference) for own, reference in losses if own is not None and reference is not None]
    return LossPair(median([own for own, _ in known]), median([reference for _, reference in known])) if known else None


def _is_same(losses: LossPair) -> bool:
    return abs(losses.own - losses.reference) <= ROUNDING * max(abs(losses.own), abs(losses.reference))


def _text(label: str, samples: int, at_samples: LossPair, seconds: float, at_time: LossPair | None) -> str:
    text = f"{label}: after {samples:,} samples {_beside(at_samples)}"
    return f"{text}; after {duration(seconds)} of training {_beside(at_time)}." if at_time else f"{text}."


def _doubt(losses: LossPair, repeats: int) -> str:
    """Say that another run might have ended otherwise, where there was only one."""
    return " One repeat cannot tell this from chance." if repeats == 1 and not _is_same(losses) else ""


def _beside(losses: LossPair) -> str:
    if _is_same(losses):
        return f"the loss of one process, {number(losses.own)}, but for rounding"
    words = f"a loss of {number(losses.own)} beside {number(losses.reference)} of one process"
    if losses.own <= 0 or losses.reference <= 0:
        return words
    share = losses.own / losses.reference - 1
    return f"{words}, {percent(abs(share))} {'higher' if share > 0 else 'lower'}"


def first_bad_step(trial: TrialFacts) -> int | None:
    """Return the first step whose loss is not finite; None: there is none."""
    bad = np.flatnonzero(~np.isfinite(np.asarray(trial.series.losses, dtype=np.float64)))
    return int(trial.series.steps[int(bad[0])]) if len(bad) and int(bad[0]) < len(trial.series.steps) else None
