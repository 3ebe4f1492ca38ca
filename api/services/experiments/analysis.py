"""An experiment's analysis: made in a worker process from what there is, stored as the text that it is answered with, and written up as a report.

The event loop never parses an analysis: that of a thousand trials has millions of characters.
"""

from __future__ import annotations

import functools
import json

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.services.experiments import analysis_process, experiments
from paceline.api.services.experiments.analysis_process import is_over
from paceline.api.services.experiments.report.exports import ExportOrder
from paceline.api.services.history.heavy_reads import HeavyReads
from paceline.db.repositories import experiment_analyses
from paceline.db.repositories.experiment_analyses import StoredAnalysis


async def make(services: Services, reads: HeavyReads, experiment_id: str) -> bytes:
    """Analyze what there is, store the answer in the place of the one before, and return it. Raises ProblemError where there is no such experiment."""
    async with services.control.read() as session:
        row = await experiments.find(session, experiment_id)
    now = services.now()
    made = await reads.elsewhere(
        ("analyze", experiment_id), functools.partial(analysis_process.analyze_stored, experiment_id, now, services.settings.keep.readings)
    )
    stored = StoredAnalysis(made.made_at, made.all_ended and is_over(row), made.seconds, made.text)
    async with services.write(request=True) as session:
        await experiment_analyses.save(session, experiment_id, stored)
    return document(experiment_id, stored)


async def newest(session: AsyncSession, experiment_id: str) -> bytes:
    """The stored answer. Raises ProblemError `not_analyzed` where there is none yet."""
    row = await experiments.find(session, experiment_id)
    stored = await experiment_analyses.newest(session, experiment_id)
    if stored is None:
        raise analysis_process.not_analyzed(row)
    # An experiment that was posted again goes on.
    return document(experiment_id, stored._replace(complete=stored.complete and is_over(row)))


async def report(services: Services, reads: HeavyReads, experiment_id: str, order: ExportOrder) -> bytes:
    """The file that was asked for, of the newest analysis. Raises ProblemError where there is none, or a figure cannot be drawn."""
    async with services.control.read() as session:
        row = await experiments.find(session, experiment_id)
        made_at = await experiment_analyses.made_at(session, experiment_id)
    if made_at is None:
        raise analysis_process.not_analyzed(row)
    return await reads.elsewhere(
        ("export", experiment_id, made_at, order), functools.partial(analysis_process.export_stored, experiment_id, order)
    )


def document(experiment_id: str, stored: StoredAnalysis) -> bytes:
    """An `api.schemas.experiments.ExperimentAnalysis` as JSON, around the analysis as it is stored."""
    made_at = stored.made_at.isoformat().replace("+00:00", "Z")
    head = {"experiment_id": experiment_id, "made_at": made_at, "complete": stored.complete, "seconds": stored.seconds}
    return f'{json.dumps(head)[:-1]}, "analysis": {stored.text}}}'.encode()
