"""Whether the loops of a coordinator have anything to do: one statement that answers for several of them, where each asking for itself would cost as much.

It only says that a loop is to look: what it finds there it reads itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, bindparam, exists, func, null, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.history.delivery_pace import LONGEST_RETRY_AFTER
from paceline.db.base import UtcDateTime
from paceline.db.models.events import EventRow
from paceline.db.models.experiments import ExperimentRow
from paceline.db.models.notifications import PENDING, DeliveryRow, EventCursorRow
from paceline.db.models.provisioning import LaunchRow, PoolRow, WithheldRow, still_open
from paceline.db.repositories.experiment_analyses import due_analyses
from paceline.db.repositories.notifications import EVENTS_CURSOR


class DueWork(NamedTuple):
    """Whether there is anything to do, by the loop that does it."""

    launches: bool
    experiments: bool
    analyses: bool
    deliveries: bool
    scaling: bool  # a pool has `autoscale`, or a job is still noted as one that no pool is made larger for
    events: bool  # there are some that notifications have not been made of


def _statement() -> Select[*tuple[Any, ...]]:
    now, latest = bindparam("now", type_=UtcDateTime), bindparam("latest", type_=UtcDateTime)
    newest = func.coalesce(select(func.max(EventRow.seq)).scalar_subquery(), 0)
    cursor = select(EventCursorRow.seq).where(EventCursorRow.name == EVENTS_CURSOR).scalar_subquery()
    return select(
        exists(select(LaunchRow.id).where(still_open(), LaunchRow.next_look_at <= now)),
        exists(select(ExperimentRow.id).where(ExperimentRow.settled.is_(False))),
        exists(due_analyses()),
        exists(select(DeliveryRow.id).where(and_(PENDING, or_(DeliveryRow.due_at <= now, DeliveryRow.due_at > latest)))),
        or_(exists(select(PoolRow.name).where(PoolRow.autoscale.is_not(null()))), exists(select(WithheldRow.job_id))),
        newest > func.coalesce(cursor, -1),
    )


#: Made once: it is asked every second.
_DUE = _statement()


async def due_work(session: AsyncSession, now: datetime, analysis_delay: timedelta) -> DueWork:
    """Look for work. `analysis_delay`: an experiment is analyzed so long after its end."""
    moments = {"now": now, "latest": now + LONGEST_RETRY_AFTER, "ended_before": now - analysis_delay}
    return DueWork(*map(bool, (await session.execute(_DUE, moments)).one()))
