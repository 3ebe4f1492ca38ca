"""The work of analyses and reports, for a worker process.

Hazard: what computes and draws is imported where it is used. The coordinator imports this module to name its functions, and must not load numpy and
matplotlib for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any

from paceline.api.errors import ProblemError
from paceline.api.services.experiments import experiments
from paceline.api.services.experiments.report.exports import ExportOrder, export
from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import Analysis
from paceline.cluster.experiments.schedule import ENDED
from paceline.cluster.history.node_readings import KeepReadings
from paceline.db.models.experiments import ExperimentRow
from paceline.db.repositories import experiment_analyses, trial_slots
from paceline.db.repositories.experiment_analyses import StoredAnalysis
from paceline.db.session import Database


@dataclass(frozen=True)
class MadeAnalysis:
    """An analysis as text. `all_ended`: of the trials."""

    text: str
    made_at: datetime
    all_ended: bool
    seconds: float


async def analyze_stored(experiment_id: str, now: datetime, keep: KeepReadings, control: Database, metrics: Database) -> MadeAnalysis:
    """Analyze an experiment from what is stored of its trials."""
    from paceline.api.services.experiments.predictor import predictor_of_trials
    from paceline.api.services.experiments.trial_facts import trial_facts
    from paceline.cluster.experiments.analysis.analyze import analyze
    from paceline.cluster.experiments.derived_values import with_derived

    began = monotonic()
    async with control.read() as session, metrics.read() as points:
        spec = experiments.required_spec_of(await experiments.find(session, experiment_id))
        facts = await trial_facts(session, points, experiment_id, spec.metric.name, now, keep)
        documents = await trial_slots.documents_of_trials(session, experiment_id)
        predictor = await predictor_of_trials(session, experiment_id, spec, facts, documents)
    text = analyze(spec, with_derived(facts, documents), predictor).model_dump_json()
    return MadeAnalysis(text, now, all(each.state in ENDED for each in facts), monotonic() - began)


async def export_stored(experiment_id: str, order: ExportOrder, control: Database, metrics: Database) -> bytes:
    """Write up the newest analysis of an experiment. Raises ProblemError where there is none, or a figure cannot be drawn."""
    async with control.read() as session:
        row = await experiments.find(session, experiment_id)
        stored = await experiment_analyses.newest(session, experiment_id)
    if stored is None:
        raise not_analyzed(row)
    return export(subject_of(row, stored), order)


def subject_of(row: ExperimentRow, stored: StoredAnalysis) -> ReportSubject:
    spec: dict[str, Any] = row.spec
    return ReportSubject(
        experiment_id=row.id,
        name=row.name,
        project=row.project,
        description=str(spec.get("description", "")),
        made_at=stored.made_at,
        complete=stored.complete and is_over(row),
        seconds=stored.seconds,
        spec=spec,
        analysis=Analysis.model_validate_json(stored.text),
    )


def is_over(row: ExperimentRow) -> bool:
    """Whether no trial is started any more. An experiment that is posted again goes on."""
    return row.state in ("completed", "cancelled")


def not_analyzed(row: ExperimentRow) -> ProblemError:
    return ProblemError(
        "not_analyzed", f"experiment {row.name} has not been analyzed; POST /api/v1/experiments/{row.id}/analyze does it on what there is"
    )
