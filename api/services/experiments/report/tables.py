"""The tables of a report that have no figure: configurations, comparisons, fits, checks of the cost model, and what did not run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.api.services.experiments.report.quantities import (
    MEASURES,
    METRIC,
    STEP_TIME,
    UNKNOWN,
    Measure,
    digits,
    median,
    or_dash,
    percent,
    plain,
    seconds,
    size,
)
from paceline.api.services.experiments.report.report_table import ReportTable, table
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Analysis, Configuration

_SHOWN = {measure.field: measure.show for measure in MEASURES}


def all_tables(subject: ReportSubject) -> list[ReportTable]:
    """Every table that has a row, in the order of the report."""
    made = (configurations, effects, differences, convergence, fits, cost_checks, predictions, outliers, refused)
    return [found for build in made if (found := build(subject)).rows]


def configurations(subject: ReportSubject) -> ReportTable:
    analysis = subject.analysis
    chosen = [each for each in analysis.configurations if each.refusal is None]
    shown = measures_of(chosen)
    rows = [_configuration_row(each, shown) for each in chosen]
    columns = ["configuration", "trials", *(measure.label for measure in shown)]
    return ReportTable(
        "All configurations",
        columns,
        rows,
        frozenset(range(1, len(columns))),
        frozenset(at for at, each in enumerate(chosen) if each.index == analysis.best),
        "Medians over the repeats; intervals are beside the figures, and all of them in the CSV. The recommended configuration is marked.",
    )


def measures_of(configurations: Sequence[Configuration]) -> list[Measure]:
    """The measures that any of these configurations has."""
    return [measure for measure in MEASURES if any(_cell(each, measure) != UNKNOWN for each in configurations)]


def _configuration_row(each: Configuration, shown: Sequence[Measure]) -> list[str]:
    counted = f"{each.completed} of {len(each.trials)}"
    return [each.label, counted, *(_cell(each, measure) for measure in shown)]


def _cell(each: Configuration, measure: Measure) -> str:
    """The median of a measure; as the metric of a configuration whose trials were pruned, what they had reached until then."""
    if measure is METRIC and each.metric is None and each.pruned is not None:
        reached = "not finite" if each.pruned.metric is None else measure.show(each.pruned.metric.value)
        return f"{reached} at step {each.pruned.step}, pruned"
    return median(measure.of(each), measure.show)


def effects(subject: ReportSubject) -> ReportTable:
    rows = [
        [
            f"{each.path}: {plain(each.second)} instead of {plain(each.first)}",
            each.figure.replace("_", " "),
            str(len(each.pairs)),
            f"{each.ratio:.3f}",
            f"{each.smallest_ratio:.3f} to {each.largest_ratio:.3f}",
            UNKNOWN if each.p_value is None else f"{each.p_value:.3g}",
            _verdict(each.is_difference),
        ]
        for each in subject.analysis.effects
    ]
    note = "Over all pairs of configurations that differ in nothing else. Ratio: the second value over the first, the median of the pairs."
    columns = ["change", "in", "pairs", "ratio", "over the pairs", "p", "verdict"]
    return ReportTable("Effects of single changes", columns, rows, frozenset((2, 3, 4, 5)), note=note)


def differences(subject: ReportSubject) -> ReportTable:
    analysis = subject.analysis
    rows = [
        [
            label_of(analysis, each.first),
            label_of(analysis, each.second),
            each.figure.replace("_", " "),
            f"{each.ratio:.3f}",
            UNKNOWN if each.p_value is None else f"{each.p_value:.3g}",
            _verdict(each.is_difference),
        ]
        for each in analysis.differences
    ]
    note = "p of a permutation test, corrected for the number of comparisons (Holm 1979); a dash: too few repeats for a test."
    columns = ["configuration", "compared with", "in", "ratio", "p", "verdict"]
    return ReportTable("Differences", columns, rows, frozenset((3, 4)), note=note)


def convergence(subject: ReportSubject) -> ReportTable:
    analysis = subject.analysis
    rows = [
        [
            label_of(analysis, each.configuration),
            label_of(analysis, each.reference),
            f"{each.at_samples:,}",
            digits(each.loss),
            digits(each.reference_loss),
            or_dash(each.at_seconds, seconds),
            or_dash(each.loss_at_time),
            or_dash(each.reference_loss_at_time),
            "yes" if each.same else "no",
        ]
        for each in analysis.convergence
    ]
    columns = ["configuration", "reference", "at samples", "loss", "reference", "at time", "loss", "reference", "the same"]
    return table("Losses beside the single process", columns, rows, text=2, note="The same: equal to rounding at equal samples.")


def fits(subject: ReportSubject) -> ReportTable:
    rows = [
        [
            each.law.replace("_", "-"),
            each.series,
            ", ".join(f"{name.replace('_', ' ')} {digits(value)}" for name, value in each.parameters.items()),
            ", ".join(map(str, each.ranks)),
            percent(each.worst_residual),
            each.text,
        ]
        for each in subject.analysis.fits
    ]
    return ReportTable("Laws of scaling", ["law", "series", "parameters", "ranks", "worst residual", "in words"], rows, frozenset((4,)))


def cost_checks(subject: ReportSubject) -> ReportTable:
    analysis = subject.analysis
    rows = [
        [
            label_of(analysis, each.configuration),
            seconds(each.measured_seconds),
            seconds(each.predicted_seconds),
            f"{each.error * 100:+.1f} %",
        ]
        for each in analysis.cost_checks
    ]
    note = "The cost model is fitted to these trials; its error here is the least to expect of its predictions."
    return table("Cost model beside what was measured", ["configuration", "measured", "predicted", "error"], rows, note=note)


def predictions(subject: ReportSubject) -> ReportTable:
    analysis = subject.analysis
    rows = [
        [
            label_of(analysis, each.configuration),
            f"{each.ranks:,}",
            seconds(each.step_seconds),
            digits(each.samples_per_second),
            percent(each.efficiency),
            or_dash(each.peak_memory_bytes, size),
        ]
        for each in analysis.predictions
    ]
    clauses = (clause.rstrip(".") for each in analysis.predictions for clause in each.assumptions.split("; "))
    assumed = "; ".join(dict.fromkeys(clauses))
    columns = ["continues", "ranks", STEP_TIME.label, "samples per second", "efficiency", "peak memory"]
    return table("Predicted, not measured", columns, rows, note=f"Predictions of the cost model. Assumed: {assumed}.")


def outliers(subject: ReportSubject) -> ReportTable:
    rows = [
        [
            str(each.trial),
            each.job_id or UNKNOWN,
            each.figure.replace("_", " "),
            _SHOWN.get(each.figure, digits)(each.value),
            _SHOWN.get(each.figure, digits)(each.median),
            each.text,
        ]
        for each in subject.analysis.outliers
    ]
    return ReportTable("Outlying trials", ["trial", "job", "in", "value", "median", "in words"], rows, frozenset((3, 4)))


def refused(subject: ReportSubject) -> ReportTable:
    rows = [[each.label, each.refusal] for each in subject.analysis.configurations if each.refusal is not None]
    return ReportTable("Refused by the planner", ["configuration", "reason"], rows, note="These configurations were not run.")


def _verdict(is_difference: bool) -> str:
    return "a difference" if is_difference else "not told apart"


def label_of(analysis: Analysis, index: int) -> str:
    """The label of the configuration with this index; its number where the analysis has none of it."""
    return next((each.label for each in analysis.configurations if each.index == index), f"configuration {index}")
