"""Queries about pools and launches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import LaunchState, NodeState
from paceline.db.base import UtcDateTime
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import PRESENT, NodeRow
from paceline.db.models.provisioning import LaunchRow, PoolRow, WithheldRow, still_open


async def pool(session: AsyncSession, name: str, *, lock: bool = False) -> PoolRow | None:
    """A pool. `lock`: nobody else launches nodes of it or changes it meanwhile."""
    query = select(PoolRow).where(PoolRow.name == name)
    return (await session.scalars(query.with_for_update().execution_options(populate_existing=True) if lock else query)).one_or_none()


async def pools(session: AsyncSession, after: str | None = None, limit: int | None = None) -> Sequence[PoolRow]:
    query = select(PoolRow) if after is None else select(PoolRow).where(PoolRow.name > after)
    return (await session.scalars(query.order_by(PoolRow.name).limit(limit))).all()


async def launch(session: AsyncSession, launch_id: str, *, lock: bool = False) -> LaunchRow | None:
    if not lock:
        return await session.get(LaunchRow, launch_id)
    return await session.get(LaunchRow, launch_id, with_for_update=True, populate_existing=True)


async def launch_of_node(session: AsyncSession, node_id: str) -> LaunchRow | None:
    """The open launch of a node, locked for a transaction that will change it."""
    query = select(LaunchRow).where(LaunchRow.node_id == node_id, still_open())
    return (await session.scalars(query.with_for_update().execution_options(populate_existing=True))).one_or_none()


async def listed(session: AsyncSession, after: str | None, limit: int) -> Sequence[LaunchRow]:
    """Launches that are on their way, are being ended, or have failed; by id, which is the order of their requests."""
    query = select(LaunchRow).where(LaunchRow.state.not_in([LaunchState.JOINED, LaunchState.ENDED]))
    query = query if after is None else query.where(LaunchRow.id > after)
    return (await session.scalars(query.order_by(LaunchRow.id).limit(limit))).all()


def _due(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return still_open(), LaunchRow.next_look_at <= now


async def due(session: AsyncSession, now: datetime, limit: int) -> Sequence[LaunchRow]:
    """Open launches that are to be looked at by now, locked; those that another replica has locked are left to it."""
    query = select(LaunchRow).where(*_due(now)).order_by(LaunchRow.next_look_at, LaunchRow.id)
    query = query.limit(limit).with_for_update(skip_locked=True).execution_options(populate_existing=True)
    return (await session.scalars(query)).all()


async def look_at_all(session: AsyncSession, now: datetime) -> None:
    """Let every open launch be looked at now, whoever was at it."""
    await session.execute(update(LaunchRow).where(still_open(), LaunchRow.next_look_at > now).values(next_look_at=now))


async def open_of_pool(session: AsyncSession, name: str) -> Sequence[LaunchRow]:
    query = select(LaunchRow).where(LaunchRow.pool == name, still_open()).order_by(LaunchRow.name)
    return (await session.scalars(query)).all()


async def open_by_pool(session: AsyncSession) -> dict[str, dict[LaunchState, int]]:
    """How many wanted launches each pool has, by state."""
    query = select(LaunchRow.pool, LaunchRow.state, func.count()).where(still_open(), LaunchRow.wanted, LaunchRow.pool.is_not(None))
    counts: dict[str, dict[LaunchState, int]] = {}
    for name, state, count in await session.execute(query.group_by(LaunchRow.pool, LaunchRow.state)):
        counts.setdefault(str(name), {})[state] = count
    return counts


async def autoscaled(session: AsyncSession) -> Sequence[PoolRow]:
    """The pools whose number of nodes the coordinator decides."""
    return [row for row in await pools(session) if row.autoscale is not None]


async def withheld(session: AsyncSession, job_ids: Collection[str] | None = None) -> Sequence[WithheldRow]:
    """The pending jobs, or those among `job_ids`, that no node is launched for; by id."""
    query = select(WithheldRow).order_by(WithheldRow.job_id)
    return (await session.scalars(query if job_ids is None else query.where(WithheldRow.job_id.in_(job_ids)))).all()


async def withheld_jobs(session: AsyncSession) -> Sequence[tuple[WithheldRow, str]]:
    """The pending jobs that no node is launched for, each with its name; by id."""
    query = select(WithheldRow, JobRow.name).join(JobRow, JobRow.id == WithheldRow.job_id).order_by(WithheldRow.job_id)
    return [(row, name) for row, name in await session.execute(query)]


async def forget_withheld(session: AsyncSession, job_ids: Collection[str]) -> None:
    await session.execute(delete(WithheldRow).where(WithheldRow.job_id.in_(job_ids)))


async def newest_ends(session: AsyncSession, since: datetime) -> dict[tuple[str, LaunchState], datetime]:
    """When the newest launch of each pool came to nothing (FAILED), or its node was taken away although it was wanted (ENDED), since then."""
    newest = func.max(LaunchRow.ended_at, type_=UtcDateTime())
    query = select(LaunchRow.pool, LaunchRow.state, newest).where(
        LaunchRow.ended_at >= since, LaunchRow.wanted, LaunchRow.pool.is_not(None)
    )
    found = await session.execute(query.group_by(LaunchRow.pool, LaunchRow.state))
    return {(str(pool), state): ended for pool, state, ended in found if ended is not None}


async def taken_names(session: AsyncSession) -> set[str]:
    """The names that no new node can have: those of present nodes, and of nodes that are to come."""
    coming = await session.scalars(select(LaunchRow.name).where(still_open()))
    return {*coming, *await session.scalars(select(NodeRow.name).where(PRESENT))}


async def failed_names(session: AsyncSession, pool: str | None) -> Sequence[str]:
    """The names under which a node of a pool, or one of no pool, could not be started, the longest ago first."""
    query = select(LaunchRow.name).where(LaunchRow.pool.is_not_distinct_from(pool), LaunchRow.state == LaunchState.FAILED)
    return (await session.scalars(query.group_by(LaunchRow.name).order_by(func.max(LaunchRow.ended_at), LaunchRow.name))).all()


async def forget_ended(session: AsyncSession, before: datetime) -> None:
    """Delete launches that were over by then."""
    await session.execute(delete(LaunchRow).where(LaunchRow.ended_at <= before))


async def node_states(session: AsyncSession, node_ids: Collection[str]) -> dict[str, NodeState]:
    query = select(NodeRow.id, NodeRow.state).where(NodeRow.id.in_(node_ids))
    return dict((await session.execute(query)).all())


async def set_handle(session: AsyncSession, node_id: str | None, handle: str) -> None:
    """Tell a node its provider's name for it, which became known after it had joined."""
    await session.execute(update(NodeRow).where(NodeRow.id == node_id).values(handle=handle).execution_options(synchronize_session=False))
