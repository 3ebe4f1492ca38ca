"""Launches: nodes that are asked for of a provider, as clients see them and ask for them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor
from paceline.api.schemas.nodes import NodeLaunch, NodeRequest
from paceline.api.services.lifecycle import launch_lifecycle
from paceline.api.services.nodes import joining, pools
from paceline.cluster.provisioners.registry import parse_settings
from paceline.cluster.provisioners.settings import ManualSettings, SshSettings, new_names
from paceline.cluster.states import OVER_LAUNCH_STATES, LaunchState
from paceline.db.base import new_id
from paceline.db.models.provisioning import LaunchRow
from paceline.db.repositories import provisioning as rows
from paceline.tls.trust import travels_readable

#: How many nodes a refusal names.
MOST_NAMED = 5

#: A token works as long as its launch is wanted, and this long at most.
TOKEN_LIFETIME = timedelta(days=30)
POOL_LABEL = "pool"


async def find(session: AsyncSession, launch_id: str, *, lock: bool = False) -> LaunchRow:
    row = await rows.launch(session, launch_id, lock=lock)
    if row is None:
        raise not_found("launch", launch_id)
    return row


def describe(row: LaunchRow, command: str | None = None) -> NodeLaunch:
    """A launch as clients see it."""
    return NodeLaunch(
        id=row.id,
        name=row.name,
        pool=row.pool,
        provider=row.provider,
        state=row.state,
        wanted=row.wanted,
        reason=row.reason,
        failure=row.failure,
        remedy=row.remedy,
        handle=row.handle,
        requested_by=row.requested_by,
        created_at=row.created_at,
        state_since=row.state_since,
        command=command,
    )


async def request_of_pool(
    session: AsyncSession, name: str, count: int, public_url: str, actor: Actor, cause: str, now: datetime
) -> list[LaunchRow]:
    """Ask for `count` nodes of a pool. `public_url`: the coordinator's, if it has one. Raises ProblemError not_found, or pool_full where it has no room for so many."""
    pool = await pools.find(session, name, lock=True)
    present = sum(each.wanted for each in await rows.open_of_pool(session, name))
    if present + count > pool.max_nodes:
        raise ProblemError("pool_full", f"pool {name} has {present} of at most {pool.max_nodes} nodes; {count} more are too many")
    common: dict[str, Any] = {
        "pool": name,
        "provider": pool.provider,
        "settings": pool.settings,
        "server": pools.server_for(pool, public_url),
        "slots": pool.slots,
    }
    return await _request(session, common, {POOL_LABEL: name} | pool.labels, count, actor, cause, now)


async def request_of_provider(
    session: AsyncSession, body: NodeRequest, server: str, actor: Actor, cause: str, now: datetime
) -> list[LaunchRow]:
    """Ask for nodes of the provider that a request describes, without a pool. Raises ProblemError pool_full."""
    settings = body.provider
    if settings is None or isinstance(settings, ManualSettings):
        raise ProblemError("invalid_request", "provider=manual launches nothing by itself: leave provider out to get a command")
    count = body.count or (len(settings.hosts) if isinstance(settings, SshSettings) else 1)
    document = settings.model_dump(mode="json", exclude_none=True)
    common: dict[str, Any] = {"pool": None, "provider": settings.type, "settings": document, "server": server, "slots": body.slots}
    return await _request(session, common, body.labels, count, actor, cause, now)


async def _request(
    session: AsyncSession, common: Mapping[str, Any], labels: Mapping[str, str], count: int, actor: Actor, cause: str, now: datetime
) -> list[LaunchRow]:
    taken, failed = await rows.taken_names(session), await rows.failed_names(session, common["pool"])
    names = new_names(parse_settings(common["settings"]), common["pool"], taken, count, failed)
    if len(names) < count:
        of = f"pool {common['pool']}" if common["pool"] else "this request"
        busy = sorted({*new_names(parse_settings(common["settings"]), common["pool"], (), len(taken) + count)} & taken)
        raise ProblemError(
            "pool_full",
            f"{len(names)} of the hosts of {of} have no node yet; {count} were asked for. There, or on their way: {', '.join(busy[:MOST_NAMED])}"
            f"{f' and {len(busy) - MOST_NAMED} more' if len(busy) > MOST_NAMED else ''}; `paceline nodes remove NAME` removes a node, and "
            "`paceline nodes cancel NAME` gives one up that has not joined",
        )
    return [
        await launch_lifecycle.request(
            session,
            LaunchRow(
                id=new_id(),
                **common,
                name=name,
                labels=dict(labels),
                state=LaunchState.REQUESTED,
                state_since=now,
                next_look_at=now,
                requested_by=actor.name,
                created_at=now,
            ),
            actor,
            cause,
            now,
        )
        for name in names
    ]


async def commands(
    session: AsyncSession, launches: Sequence[LaunchRow], actor: Actor, authority: str | None, now: datetime
) -> list[NodeLaunch]:
    """Launches as their requester sees them: with the commands to run, where people start the nodes. `authority`: the coordinator's own, as PEM."""
    return [describe(row, await _command(session, row, actor, authority, now) if row.provider == "manual" else None) for row in launches]


async def _command(session: AsyncSession, row: LaunchRow, actor: Actor, authority: str | None, now: datetime) -> str:
    token, _ = await joining.create_join_token(session, created_by=actor.name, now=now, lifetime=TOKEN_LIFETIME, launch_id=row.id)
    words = ["paceline", "worker", "--server", row.server, "--name", row.name]
    words += ["--slots", str(row.slots)] if row.slots is not None else []
    words += [word for key, value in sorted(row.labels.items()) for word in ("--label", f"{key}={value}")]
    words += ["--token", joining.pinned(token, row.server, authority)]
    words += ["--insecure-http"] if travels_readable(row.server) else []
    return shlex.join(words)


async def cancel(session: AsyncSession, row: LaunchRow, actor: Actor, now: datetime) -> None:
    """Cancel a launch, whose row is locked; one that is over is forgotten. Raises ProblemError launch_joined where its node has joined."""
    if row.state in OVER_LAUNCH_STATES:
        await session.delete(row)
        return
    if row.state is LaunchState.JOINED and row.wanted:
        raise ProblemError("launch_joined", f"node {row.name} has joined; remove the node")
    await launch_lifecycle.drop_wish(session, row, actor, f"cancelled by {actor.name}", now)
