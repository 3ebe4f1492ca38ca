"""The few facts of an experiment that stand at the top of its report, and how the figures were made. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.api.services.experiments.report.quantities import digits, joules, seconds
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Sentence
from paceline.monitoring.words import plural


def facts_line(subject: ReportSubject) -> list[tuple[str, str]]:
    """(number, words) of each fact."""
    analysis = subject.analysis
    counted = [
        (f"{analysis.completed} of {analysis.trials}", "trials completed"),
        (str(analysis.failed), "failed"),
        (str(analysis.refused), "refused by the planner"),
        (str(sum(each.refusal is None for each in analysis.configurations)), "configurations"),
    ]
    found = [each for each in counted if each[0] != "0"]
    if analysis.slot_hours is not None:
        found.append((digits(analysis.slot_hours), "slot-hours"))
    if analysis.energy_joules is not None:
        found.append((joules(analysis.energy_joules), "of the cards"))
    so_far = "" if subject.complete else ", while trials can still change it"
    return [*found, (subject.made_at.strftime("%Y-%m-%d %H:%M UTC"), f"analyzed{so_far}")]


def kept_apart(sentences: Sequence[Sentence]) -> tuple[list[str], list[str], list[str]]:
    """(recommendations, findings, doubts), each in its order."""
    by_kind = {kind: [each.text for each in sentences if each.kind == kind] for kind in ("recommendation", "finding", "doubt")}
    return by_kind["recommendation"], by_kind["finding"], by_kind["doubt"]


def method(subject: ReportSubject) -> str:
    """How the figures were made, in a few sentences."""
    trials = plural(subject.analysis.trials, "trial")
    return (
        f"Made by Paceline from {trials} of experiment {subject.experiment_id} in {seconds(subject.seconds)}. Speeds are of committed steps of rank 0 "
        "without the first ones, which warm up; a configuration's figure is the median of its repeats, with a 95 % bootstrap interval; differences are "
        "called so where a permutation test, corrected for the number of comparisons (Holm 1979), has p under 0.05."
    )
