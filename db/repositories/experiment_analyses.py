"""The newest analysis of each experiment, as text: what is stored is what is sent, and nobody parses it on the way."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Text, bindparam, cast, literal, or_, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.base import constants
from paceline.db.dialects import dialect_of, is_postgres
from paceline.db.models.experiments import ExperimentAnalysisRow, ExperimentRow

#: Experiments that one look finds due; they are few at a time.
MOST_DUE = 16


class StoredAnalysis(NamedTuple):
    """`text`: the JSON of a `cluster.experiments.findings.Analysis`."""

    made_at: datetime
    complete: bool  # no trial can still change it
    seconds: float  # that it took
    text: str


class AnalysisSummary(NamedTuple):
    """The interpretation of the newest analysis. `sentences`: documents of `cluster.experiments.findings.Sentence`."""

    made_at: datetime
    sentences: list[dict[str, Any]]


async def summary(session: AsyncSession, experiment_id: str) -> AnalysisSummary | None:
    """The interpretation of the newest analysis, without the rest of it, which may be large."""
    table = ExperimentAnalysisRow
    query = select(table.made_at, table.analysis["sentences"]).where(table.experiment_id == experiment_id)
    row = (await session.execute(query)).one_or_none()
    return None if row is None else AnalysisSummary(row[0], row[1] or [])


async def made_at(session: AsyncSession, experiment_id: str) -> datetime | None:
    """When the newest analysis was made; None: there is none."""
    return await session.scalar(select(ExperimentAnalysisRow.made_at).where(ExperimentAnalysisRow.experiment_id == experiment_id))


async def newest(session: AsyncSession, experiment_id: str) -> StoredAnalysis | None:
    table = ExperimentAnalysisRow
    query = select(table.made_at, table.complete, table.seconds, cast(table.analysis, Text)).where(table.experiment_id == experiment_id)
    row = (await session.execute(query)).one_or_none()
    return None if row is None else StoredAnalysis(*row)


def due_analyses() -> Select[str]:
    """The ids of experiments to be analyzed that have ended before the parameter `ended_before`, the longest ended first."""
    table, row = ExperimentAnalysisRow, ExperimentRow
    return (
        select(row.id)
        .join(table, table.experiment_id == row.id, isouter=True)
        .where(row.state.in_(constants("completed", "stopped")), row.settled, row.state_since < bindparam("ended_before"))
        .where(or_(table.made_at.is_(None), table.made_at < row.state_since))
        .order_by(row.state_since, row.id)
        .limit(MOST_DUE)
    )


#: Made once: a loop asks it every other second.
_DUE = due_analyses()


async def due(session: AsyncSession, ended_before: datetime) -> list[str]:
    """The ids of experiments that have ended before then, of themselves or by their budget, and have no analysis since; the longest ended first."""
    return list(await session.scalars(_DUE, {"ended_before": ended_before}))


async def save(session: AsyncSession, experiment_id: str, stored: StoredAnalysis) -> None:
    """Store an analysis in the place of the one before."""
    made_at, complete, seconds, text = stored
    columns = {"made_at": made_at, "complete": complete, "seconds": seconds, "analysis": _document(session, text)}
    dialect = dialect_of(session)
    statement = dialect.insert(ExperimentAnalysisRow).values(experiment_id=experiment_id, **columns)
    await session.execute(statement.on_conflict_do_update(index_elements=["experiment_id"], set_=columns))


def _document(session: AsyncSession, text: str) -> ColumnElement[Any]:
    """The text as a value of a column of JSON. SQLite's is text already, and casting would make a number of it."""
    return cast(literal(text, Text), postgresql.JSON) if is_postgres(session) else literal(text, Text)
