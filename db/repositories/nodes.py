"""The queries for nodes and their marks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import Select, Table, and_, bindparam, func, null, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import NodeState
from paceline.db.base import UtcDateTime
from paceline.db.dialects import is_postgres
from paceline.db.models.nodes import PRESENT, NodeRow


class Mark(NamedTuple):
    """Whether an agent's channel has something to do: the channel that speaks for the node, and the revision of its desired state."""

    id: str
    state: NodeState
    channel_id: str | None
    desired_revision: int
    device: str
    leaving: bool


class Reach(NamedTuple):
    """Ids of nodes that cannot be reached, or relied on."""

    silent: Collection[str] = ()  # their agents are not connected to any replica
    unheard: Collection[str] = ()  # of these: nothing was heard of their agents since the coordinator is up
    draining: Collection[str] = ()
    behind: Collection[str] = ()  # they have reports which they have not sent yet


class NodeAddress(NamedTuple):
    host: str
    store_port: int


class Silence(NamedTuple):
    node_id: str
    state: NodeState
    state_before_unreachable: NodeState | None
    heartbeat_at: datetime | None
    joined_at: datetime


_MARK = (NodeRow.id, NodeRow.state, NodeRow.channel_id, NodeRow.desired_revision, NodeRow.device, NodeRow.leaving)


async def get(session: AsyncSession, node_id: str) -> NodeRow | None:
    return await session.get(NodeRow, node_id)


async def get_locked(session: AsyncSession, node_id: str) -> NodeRow | None:
    """The node's row, for a transaction that will change it, or that reads its assignments and its revision as one."""
    return await session.get(NodeRow, node_id, with_for_update={"key_share": True}, populate_existing=True)


async def lock(session: AsyncSession, node_ids: Collection[str]) -> None:
    """Lock these nodes until the commit: no report of them is stored meanwhile. In id order, so that two transactions never wait for
    each other."""
    query = select(NodeRow.id).where(NodeRow.id.in_(node_ids)).order_by(NodeRow.id).with_for_update(key_share=True)
    await session.execute(query)


async def all_locked(session: AsyncSession, node_ids: Collection[str]) -> Sequence[NodeRow]:
    """The rows of these nodes, for a transaction that will change them; in id order, so that two transactions never wait for each other."""
    query = select(NodeRow).where(NodeRow.id.in_(node_ids)).order_by(NodeRow.id).with_for_update(key_share=True)
    return (await session.scalars(query.execution_options(populate_existing=True))).all()


async def page(session: AsyncSession, states: Collection[NodeState], after: tuple[str, str] | None, limit: int) -> Sequence[NodeRow]:
    """A page of nodes by name. Without `states`: all but the gone ones."""
    wanted = states or set(NodeState) - {NodeState.GONE}
    query = select(NodeRow).where(NodeRow.state.in_(wanted)).order_by(NodeRow.name, NodeRow.id).limit(limit)
    if after is not None:
        name, node_id = after
        query = query.where((NodeRow.name > name) | ((NodeRow.name == name) & (NodeRow.id > node_id)))
    return (await session.scalars(query)).all()


async def by_id(session: AsyncSession, node_ids: Collection[str]) -> dict[str, NodeRow]:
    """Nodes by their ids, those that are gone too. A join would read a node's documents again for each of its ranks."""
    return {row.id: row for row in await session.scalars(select(NodeRow).where(NodeRow.id.in_(node_ids)))}


async def present(session: AsyncSession) -> Sequence[NodeRow]:
    return (await session.scalars(select(NodeRow).where(PRESENT).order_by(NodeRow.name))).all()


async def newest_of_pool(session: AsyncSession, pool: str) -> NodeRow | None:
    """The node of a pool that has joined last and told what it has, although it may be gone."""
    query = (
        select(NodeRow).where(NodeRow.pool == pool, NodeRow.inventory.is_not(null())).order_by(NodeRow.joined_at.desc(), NodeRow.id.desc())
    )
    return (await session.scalars(query.limit(1))).one_or_none()


async def marks(session: AsyncSession, node_ids: Collection[str] | None = None) -> dict[str, Mark]:
    """Marks by node: of these, or of all that an agent may speak for, including gone ones with a channel."""
    spoken_for = or_(NodeRow.state != NodeState.GONE, NodeRow.channel_id.is_not(None))
    query = select(*_MARK).where(spoken_for if node_ids is None else NodeRow.id.in_(node_ids))
    return {row.id: Mark(*row) for row in await session.execute(query)}


def _silent_since() -> Select[*tuple[Any, ...]]:
    since, until = bindparam("since", type_=UtcDateTime), bindparam("until", type_=UtcDateTime)
    signs = (NodeRow.heartbeat_at, NodeRow.joined_at)
    heard = or_(*(and_(sign > since, sign <= until) for sign in signs))
    drained = or_(NodeRow.state == NodeState.DRAINING, NodeRow.state_before_unreachable == NodeState.DRAINING)
    columns = (NodeRow.id, NodeRow.state, NodeRow.state_before_unreachable, NodeRow.heartbeat_at, NodeRow.joined_at)
    query = select(*columns).where(PRESENT, or_(drained, func.coalesce(heard, False).is_(False)))
    return query.order_by(NodeRow.name)


#: Made once: a loop asks it every second.
_SILENT_SINCE = _silent_since()


async def silent_since(session: AsyncSession, since: datetime, until: datetime) -> list[Silence]:
    """Nodes without a heartbeat since then, and those that drain, or were lost while they drained. `until`: a heartbeat that is noted
    as of later does not count, since the clock was set back."""
    return [Silence(*row) for row in await session.execute(_SILENT_SINCE, {"since": since, "until": until})]


async def heartbeats(session: AsyncSession, node_ids: Collection[str]) -> list[datetime]:
    """The times at which these nodes were last heard of, without those that never were."""
    if not node_ids:
        return []
    query = select(NodeRow.heartbeat_at).where(NodeRow.id.in_(node_ids), NodeRow.heartbeat_at.is_not(None))
    return [each for each in await session.scalars(query) if each is not None]


async def in_states(session: AsyncSession, states: Collection[NodeState]) -> set[str]:
    """The present nodes in these states."""
    return set(await session.scalars(select(NodeRow.id).where(PRESENT, NodeRow.state.in_(states))))


async def note_heartbeats(session: AsyncSession, beats: Sequence[Mapping[str, Any]]) -> None:
    """Store heartbeats, each with `node_id` and its columns. A node whose row is locked, or that is gone, is passed over: its next
    heartbeat is soon enough, and so this never waits for a transaction that waits for it."""
    mine = select(NodeRow.id).where(NodeRow.id == bindparam("node_id"), NodeRow.state != NodeState.GONE)
    columns = ("heartbeat_at", "clock_skew", "backlog", "last_sample")
    table = cast("Table", NodeRow.__table__)
    statement = update(table).where(table.c.id == mine.with_for_update(key_share=True, skip_locked=True).scalar_subquery())
    await session.execute(statement.values({name: bindparam(name) for name in columns}), list(beats))


async def reach(session: AsyncSession, node_ids: Collection[str], up_since: datetime | None) -> Reach:
    """Return which of these nodes can be reached; which ones are behind is left out. A replica that is killed leaves its channels in the rows:
    only an agent that has been heard since `up_since`, and of late, is taken to be connected."""
    if not node_ids:
        return Reach()
    query = select(NodeRow.id, NodeRow.channel_id, NodeRow.state, NodeRow.heartbeat_at).where(NodeRow.id.in_(node_ids))
    found = (await session.execute(query)).all()
    away = NodeState.UNREACHABLE, NodeState.LOST
    unheard = {row.id for row in found if up_since is not None and (row.heartbeat_at is None or row.heartbeat_at < up_since)}
    silent = {row.id for row in found if row.channel_id is None or row.state in away}
    return Reach(silent | unheard, unheard, {row.id for row in found if row.state is NodeState.DRAINING})


async def behind(session: AsyncSession) -> set[str]:
    """Nodes that have reported records which they have not sent yet."""
    return set(await session.scalars(select(NodeRow.id).where(NodeRow.backlog > 0)))


async def named(session: AsyncSession, node_ids: Collection[str]) -> dict[str, str]:
    """Names by id, of gone nodes too."""
    if not node_ids:
        return {}
    query = select(NodeRow.id, NodeRow.name).where(NodeRow.id.in_(node_ids))
    return dict((await session.execute(query)).all())


async def addresses(session: AsyncSession, node_ids: Collection[str]) -> dict[str, NodeAddress]:
    """The addresses under which other nodes reach these, gone ones too."""
    query = select(NodeRow.id, NodeRow.address, NodeRow.store_port).where(NodeRow.id.in_(node_ids))
    return {node_id: NodeAddress(host, port) for node_id, host, port in await session.execute(query)}


async def clock_skew(session: AsyncSession, node_id: str) -> float:
    """How many seconds a node's clock is ahead of the coordinator's, by its newest heartbeats; 0 while it is not known."""
    return await session.scalar(select(NodeRow.clock_skew).where(NodeRow.id == node_id)) or 0.0


async def raise_desired_revision(session: AsyncSession, node_ids: Collection[str]) -> None:
    """Raise the desired revision of these nodes. They are locked in id order first, so that two transactions never wait for each other."""
    if not node_ids:
        return
    if len(node_ids) > 1 and is_postgres(session):
        await lock(session, node_ids)
    statement = update(NodeRow).where(NodeRow.id.in_(node_ids)).values(desired_revision=NodeRow.desired_revision + 1)
    await session.execute(statement.execution_options(synchronize_session=False))


async def count_by_state(session: AsyncSession) -> dict[str, int]:
    query = select(NodeRow.state, func.count()).where(PRESENT).group_by(NodeRow.state)
    return {state.value: count for state, count in (await session.execute(query))}
