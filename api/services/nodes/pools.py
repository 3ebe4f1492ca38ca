"""Pools of nodes: stored, described, deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor
from paceline.api.schemas.nodes import NodePool, WithheldJob
from paceline.api.services.lifecycle import events, launch_lifecycle
from paceline.api.services.nodes import nodes, withheld
from paceline.api.services.nodes.node_hours import NodeHours
from paceline.cluster.provisioners.registry import parse_settings
from paceline.cluster.provisioners.settings import AutoscaleSettings, PoolSpec
from paceline.cluster.states import LaunchState
from paceline.db.models.provisioning import PoolRow
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import provisioning as rows

#: Of the reason why a pool is unreadable.
MOST_CHARACTERS = 500


async def find(session: AsyncSession, name: str, *, lock: bool = False) -> PoolRow:
    """A pool by its name. Raises ProblemError not_found, which names the pools that there are."""
    row = await rows.pool(session, name, lock=lock)
    if row is None:
        raise not_found("pool", name)
    return row


def server_for(row: PoolRow, public_url: str) -> str:
    """The coordinator's URL for the next nodes of a pool: its own, else the public one, else the one under which the pool was sent."""
    return row.server if row.server_given or not public_url else public_url


async def apply(
    session: AsyncSession, spec: PoolSpec, public_url: str, address: str, actor: Actor, now: datetime, *, is_new: bool = False
) -> PoolRow:
    """Store a pool, in the place of one that has its name. Its nodes stay as they are; the next one is launched as it says now.

    `public_url`: the coordinator's, if it has one; `address`: the URL under which the pool was sent. `is_new`: raise ProblemError already_exists where
    there is a pool of this name."""
    row = await rows.pool(session, spec.name, lock=True)
    if is_new and row is not None:
        raise ProblemError("already_exists", f"there is a pool {spec.name!r} already; edit it, or choose another name")
    # A client that edits what it has read sends the coordinator's URL back, which makes it none of the pool's own.
    is_as_shown = row is not None and not row.server_given and spec.server == server_for(row, public_url)
    values = {
        "provider": spec.provider.type,
        "settings": spec.provider.model_dump(mode="json", exclude_none=True),
        "min_nodes": spec.min_nodes,
        "max_nodes": spec.most_nodes,
        "labels": dict(spec.labels),
        "slots": spec.slots,
        "spot": spec.spot,
        "autoscale": spec.autoscale.model_dump(mode="json") if spec.autoscale else None,
        "server": spec.server or public_url or address,
        "server_given": spec.server is not None and not is_as_shown,
    }
    if row is not None and all(getattr(row, name) == value for name, value in values.items()):
        return row
    verb = "created" if row is None else "changed"
    if row is None:
        row = PoolRow(name=spec.name, created_at=now)
        session.add(row)
    for name, value in values.items():
        setattr(row, name, value)
    row.updated_at = now
    await session.flush()
    await _record(
        session, f"pool.{verb}", actor, f"pool {row.name} was {verb}: {row.provider}, {row.min_nodes} to {row.max_nodes} nodes", now
    )
    return row


async def describe(session: AsyncSession, pools: Sequence[PoolRow], public_url: str, now: datetime) -> list[NodePool]:
    """Pools as clients see them."""
    counts = await rows.open_by_pool(session)
    found = await withheld.by_pool(session)
    return [_described(row, counts.get(row.name, {}), found.get(row.name, []), public_url, now) for row in pools]


def why_unreadable(row: PoolRow, now: datetime) -> Exception | None:
    """The exception that reading what is stored of a pool raises: another version may have stored it. None: all of it can be read."""
    try:
        parse_settings(row.settings)
        NodeHours.stored(row.spent, now)
        if row.autoscale is not None:
            AutoscaleSettings.model_validate(row.autoscale)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the pool's own
        return error
    return None


def _described(row: PoolRow, counts: Mapping[LaunchState, int], waiting: Sequence[WithheldJob], public_url: str, now: datetime) -> NodePool:
    joined = counts.get(LaunchState.JOINED, 0)
    why = why_unreadable(row, now)
    return NodePool(
        name=row.name,
        provider=parse_settings(row.settings) if why is None else row.settings,
        unreadable=None if why is None else f"{type(why).__name__}: {why}"[:MOST_CHARACTERS],
        min_nodes=row.min_nodes,
        max_nodes=row.max_nodes,
        labels=row.labels,
        slots=row.slots,
        spot=row.spot,
        autoscale=AutoscaleSettings.model_validate(row.autoscale) if row.autoscale is not None and why is None else None,
        node_hours=NodeHours.stored(row.spent, now).hours if why is None else None,
        server=server_for(row, public_url),
        nodes=joined,
        coming=sum(counts.values()) - joined,
        withheld=list(waiting[: withheld.MOST_NAMED]),
        withheld_count=len(waiting),
        updated_at=row.updated_at,
    )


async def delete(session: AsyncSession, row: PoolRow, actor: Actor, now: datetime, *, drain: bool) -> None:
    """Delete a pool, whose row is locked. `drain`: its nodes are drained and ended. Raises ProblemError pool_in_use where it has nodes."""
    launches = await rows.open_of_pool(session, row.name)
    wanted = [each for each in launches if each.wanted]
    if wanted and not drain:
        named = ", ".join(each.name for each in wanted[:5]) + (f" and {len(wanted) - 5} more" if len(wanted) > 5 else "")
        raise ProblemError("pool_in_use", f"pool {row.name} has {len(wanted)} node(s): {named}")
    why = f"{actor.name} deleted the pool {row.name}"
    for node_id in sorted(each.node_id for each in launches if each.node_id is not None):
        node = await node_rows.get_locked(session, node_id)
        if node is not None:
            await nodes.remove(session, node, actor, now, force=False)
    for launch_id in sorted(each.id for each in wanted):
        launch = await rows.launch(session, launch_id, lock=True)
        if launch is not None:
            await launch_lifecycle.drop_wish(session, launch, actor, why, now)
    await session.delete(row)
    await _record(session, "pool.deleted", actor, f"pool {row.name} was deleted", now)


async def _record(session: AsyncSession, type: str, actor: Actor, message: str, now: datetime) -> None:
    await events.record(session, type=type, actor=actor, cause=f"{actor.name} asked for it", message=message, time=now)
