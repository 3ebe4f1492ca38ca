"""The report for programs: CSV with a row for each configuration, and JSON with everything."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from paceline.api.services.experiments.report.quantities import MEASURES, plain
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Configuration, Estimate

#: A cell that begins so is a formula to a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_rows(subject: ReportSubject) -> bytes:
    """One row for each configuration: its values, then each figure with its interval in SI units (seconds, bytes, joules, shares of 1)."""
    analysis = subject.analysis
    parts = sorted({name for each in analysis.configurations for name in each.parts})
    columns = [
        "configuration",
        "label",
        *analysis.axes,
        "ranks",
        "strategy",
        "baseline",
        "trials",
        "completed",
        "refusal",
        "recommended",
        "pareto",
    ]
    for measure in MEASURES:
        columns += [measure.field, f"{measure.field}_low", f"{measure.field}_high"]
    columns += [*(f"{name}_seconds" for name in parts), "predicted_step_seconds", "pruned_at_step", "pruned_metric"]
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([harmless(each) for each in columns])
    for each in analysis.configurations:
        writer.writerow([harmless(cell) for cell in _row(subject, each, parts)])
    return target.getvalue().encode()


def harmless(cell: Any) -> Any:
    """The cell, as text that no spreadsheet computes. Numbers stay numbers."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def _row(subject: ReportSubject, each: Configuration, parts: list[str]) -> list[Any]:
    values = [_value(each.values[path]) if path in each.values else None for path in subject.analysis.axes]
    recommended = each.index == subject.analysis.best
    head = [each.index, each.label, *values, each.world_size, each.strategy, each.baseline, len(each.trials), each.completed, each.refusal]
    measures: list[float | None] = []
    for measure in MEASURES:
        measures += _three(measure.of(each))
    return [
        *head,
        recommended,
        each.pareto,
        *measures,
        *(each.parts.get(name) for name in parts),
        each.predicted_step_seconds,
        *_pruned(each),
    ]


def _pruned(each: Configuration) -> list[float | None]:
    if each.pruned is None:
        return [None, None]
    return [each.pruned.step, each.pruned.metric.value if each.pruned.metric else None]


def _value(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else plain(value)


def _three(found: Estimate | None) -> list[float | None]:
    return [None, None, None] if found is None else [found.value, found.low, found.high]


def json_document(subject: ReportSubject) -> bytes:
    document = {
        "experiment_id": subject.experiment_id,
        "name": subject.name,
        "project": subject.project,
        "description": subject.description,
        "made_at": subject.made_at.isoformat(),
        "complete": subject.complete,
        "spec": subject.spec,
        "analysis": subject.analysis.model_dump(mode="json"),
    }
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"
