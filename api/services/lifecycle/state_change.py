"""The one way to change the row of a job, node or checkpoint: a compare-and-set on (state, version).

Only `job_lifecycle`, `gang_lifecycle`, `node_lifecycle`, `launch_lifecycle` and `checkpoint_lifecycle` use it: with `rank_lifecycle`, `experiment_lifecycle`
and `delivery_lifecycle`, which change locked rows, they are the only writers of states. Each moves along its noun's transition table and writes the event in the same
transaction.

Order of locks, so that no two transactions wait for each other: job, nodes (`job_snapshots.lock_ranks`), launches, ranks, checkpoints, events.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, cast

from sqlalchemy import CursorResult, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.attributes import set_committed_value

from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.provisioning import LaunchRow


class StaleStateError(Exception):
    """Another transaction changed the row since it was read: read it again and decide anew."""


async def compare_and_set(session: AsyncSession, row: JobRow | NodeRow | CheckpointRow | LaunchRow, **values: Any) -> None:
    model: Any = type(row)
    state: StrEnum = row.state
    values["version"] = row.version + 1
    mine = (model.id == row.id, model.state == state, model.version == row.version)
    statement = update(model).where(*mine).values(**values).execution_options(synchronize_session=False)
    if cast("CursorResult[Any]", await session.execute(statement)).rowcount != 1:
        raise StaleStateError(f"{model.__tablename__} {row.id} is no longer {state} at version {row.version}")
    for name, value in values.items():
        set_committed_value(row, name, value)
