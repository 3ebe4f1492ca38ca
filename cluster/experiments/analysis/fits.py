"""Amdahl's and Gustafson's laws and the alpha-beta model of communication, fitted to what was measured, or a sentence why they are not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials
from paceline.cluster.experiments.analysis.least_squares import PARAMETERS, TwoParameterFit, fit_two
from paceline.cluster.experiments.analysis.scaling import ScalingSeries
from paceline.cluster.experiments.analysis.statistics import median, usable
from paceline.cluster.experiments.analysis.words import duration, listed, number, percent, size
from paceline.cluster.experiments.findings import Fit
from paceline.monitoring.words import plural

#: A law that misses a measured point by more does not describe the series.
POOR = 0.15


@dataclass(frozen=True)
class Fits:
    found: Sequence[Fit]
    refused: Sequence[str]  # sentences


@dataclass(frozen=True)
class CommunicationPoint:
    ranks: int
    bytes: float  # that the busiest rank sends in a step
    seconds: float  # of exposed communication in a step

    @property
    def rounds(self) -> int:
        """Messages behind each other in a ring all-reduce: twice around without the rank itself (Patarasuk and Yuan 2009)."""
        return 2 * (self.ranks - 1)


def fit_all(scaling: Literal["strong", "weak"], series: Sequence[ScalingSeries]) -> Fits:
    """Fit the law of the experiment's kind of scaling to each series, and the alpha-beta model to each strategy."""
    law = "Amdahl's law" if scaling == "strong" else "Gustafson's law"
    fit = fit_amdahl if scaling == "strong" else fit_gustafson
    laws = {each.label: fit(each) for each in series}
    models = {strategy: fit_alpha_beta(strategy, points) for strategy, points in communication(series).items()}
    refused = [
        *_refusal(law, f"{PARAMETERS + 1} different numbers of ranks", [label for label, found in laws.items() if found is None]),
        *_refusal(
            "the alpha-beta model of communication",
            f"{PARAMETERS + 1} configurations with different bytes and ranks, and time that grows with the bytes",
            [strategy for strategy, found in models.items() if found is None],
        ),
    ]
    return Fits([found for found in (*laws.values(), *models.values()) if found is not None], refused)


def fit_amdahl(series: ScalingSeries) -> Fit | None:
    """Fit T(n) = T(1) (s + (1 - s) / n) to the seconds of a step on n ranks, s being the serial share (Amdahl 1967)."""
    points = _points(series, "step_seconds")
    found = fit_two([1.0] * len(points), [1 / ranks for ranks, _ in points], [value for _, value in points]) if _enough(points) else None
    if found is None:
        return None
    serial = found.first / (found.first + found.second)
    most = f", by which no number of ranks is more than {number(1 / serial)} times as fast as one" if 0.0005 < serial < 1 else ""
    return _law("amdahl", series, points, found, serial, most)


def fit_gustafson(series: ScalingSeries) -> Fit | None:
    """Fit X(n) = X(1) (s + (1 - s) n) to the samples per second of n ranks with n times the work, s being the serial share (Gustafson 1988)."""
    points = _points(series, "samples_per_second")
    found = fit_two([1.0] * len(points), [float(ranks) for ranks, _ in points], [value for _, value in points]) if _enough(points) else None
    if found is None:
        return None
    serial = found.first / (found.first + found.second)
    return _law("gustafson", series, points, found, serial)


def fit_alpha_beta(strategy: str, points: Sequence[CommunicationPoint]) -> Fit | None:
    """Fit seconds = alpha rounds + bytes / beta to the exposed communication of a strategy's steps (Hockney 1994).

    None: too few points, or points that do not tell latency from bandwidth.
    """
    measured = [point.seconds for point in points]
    found = fit_two([float(point.rounds) for point in points], [point.bytes for point in points], measured)
    if found is None or found.second <= 0:
        return None
    bandwidth = usable(1 / found.second)
    if bandwidth is None:
        return None
    subject = f"the exposed communication of {strategy} in {plural(len(points), 'configuration')}"
    constants, miss = f"{duration(found.first)} a message and {size(bandwidth)}/s", percent(found.worst_residual)
    good = f"The alpha-beta model describes {subject} to within {miss}: {constants}. What overlaps computing is not in it."
    poor = f"The alpha-beta model does not describe {subject}: with {constants} it misses one by {miss}."
    return Fit(
        law="alpha_beta",
        series=strategy,
        parameters={"latency_seconds": found.first, "bytes_per_second": bandwidth},
        ranks=[point.ranks for point in points],
        measured=measured,
        fitted=list(found.fitted),
        worst_residual=found.worst_residual,
        text=good if found.worst_residual <= POOR else poor,
    )


def communication(series: Sequence[ScalingSeries]) -> Mapping[str, list[CommunicationPoint]]:
    """Return what each strategy's configurations of several ranks sent in a step and how long they waited for it."""
    found: dict[str, list[CommunicationPoint]] = {}
    for each in series:
        points = [_communication_point(member) for member in each.members if member.world_size > 1]
        found.setdefault(each.strategy, []).extend(point for point in points if point is not None)
    return {strategy: points for strategy, points in found.items() if points}


def _communication_point(configuration: RepeatedTrials) -> CommunicationPoint | None:
    sent = configuration.figures["bytes_per_step"]
    seconds = [value for trial in configuration.measured if (value := usable(trial.parts.get("communication"))) is not None]
    if not sent or not seconds or median(sent) <= 0 or median(seconds) <= 0:
        return None
    return CommunicationPoint(configuration.world_size, median(sent), median(seconds))


def _points(series: ScalingSeries, figure: str) -> list[tuple[int, float]]:
    medians = [(each.world_size, median(each.figures[figure])) for each in series.members if each.figures[figure]]
    return [(ranks, value) for ranks, value in medians if value > 0]


def _enough(points: Sequence[tuple[int, float]]) -> bool:
    return len({ranks for ranks, _ in points}) > PARAMETERS


def _law(
    law: Literal["amdahl", "gustafson"],
    series: ScalingSeries,
    points: Sequence[tuple[int, float]],
    found: TwoParameterFit,
    serial: float,
    consequence: str = "",
) -> Fit:
    series_words = f"{series.label} on {listed([str(ranks) for ranks, _ in points], 6)} ranks"
    name, miss, share = f"{law.capitalize()}'s law", percent(found.worst_residual), f"a serial share of {percent(serial)}"
    good = f"{name} describes {series_words} to within {miss}: {share}{consequence}."
    poor = f"{name} does not describe {series_words}: with {share} it misses a step by {miss}."
    return Fit(
        law=law,
        series=series.label,
        parameters={"serial_share": serial},
        ranks=[ranks for ranks, _ in points],
        measured=[value for _, value in points],
        fitted=list(found.fitted),
        worst_residual=found.worst_residual,
        text=good if found.worst_residual <= POOR else poor,
    )


def _refusal(law: str, needed: str, series: Sequence[str]) -> list[str]:
    return [f"Not fitted to {listed(series)}: {law}, which needs {needed}."] if series else []
