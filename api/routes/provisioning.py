"""Pools of nodes, and the nodes that their providers are to start."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import paging
from paceline.api.core.context import Services
from paceline.api.core.identity import Caller
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import Admin, ReadSession, ServicesDep, WriteSession
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Page
from paceline.api.schemas.nodes import NodeLaunch, NodeLaunches, NodePool, NodeRequest
from paceline.api.services.jobs.idempotency import OnceOnly
from paceline.api.services.nodes import joining, launches, nodes, pools
from paceline.cluster.provisioners.settings import PoolName, PoolSpec, pool_json_schema
from paceline.db.repositories import provisioning as rows

MANUAL = "manual"
router = APIRouter(prefix="/cluster", tags=["cluster"])
Name = Annotated[PoolName, Path()]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*`: the pool is only created; 409 already_exists where there is one of this name"),
]


def address_of(request: Request) -> str:
    """The coordinator's URL that this request came to."""
    return str(request.base_url).rstrip("/")


def server_for_nodes(request: Request, services: Services) -> str:
    """The coordinator's URL for the agents: its public one, or the one that this request came to."""
    return services.settings.public_url or address_of(request)


@router.get("/pools", response_model=Page[NodePool])
async def list_pools(
    services: ServicesDep, session: ReadSession, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None
) -> Page[NodePool] | JSONResponse:
    """All pools by name, each with how many nodes it has."""
    key = paging.decode(cursor, str)
    found = await rows.pools(session, str(key[0]) if key else None, limit + 1)
    described = {each.name: each for each in await pools.describe(session, found[:limit], services.settings.public_url, services.now())}
    page = paging.page_of(found, limit, lambda row: described[row.name], lambda row: (row.name,))
    return paging.only(page, NodePool, fields)


@router.get("/pool-schema")
async def pool_schema() -> dict[str, Any]:
    """The JSON Schema of a pool, as it is applied."""
    return pool_json_schema()


@router.get("/pools/{name}")
async def get_pool(name: Name, services: ServicesDep, session: ReadSession) -> NodePool:
    return (await pools.describe(session, [await pools.find(session, name)], services.settings.public_url, services.now()))[0]


@router.put("/pools/{name}")
async def apply_pool(
    name: Name,
    body: PoolSpec,
    request: Request,
    caller: Admin,
    services: ServicesDep,
    session: WriteSession,
    if_none_match: IfNoneMatch = None,
) -> NodePool:
    """Create a pool, or replace it. Nodes that it has stay as they are; further ones are launched as it says now."""
    if body.name != name:
        raise ProblemError("invalid_request", f"the body is of the pool {body.name!r}, the path of {name!r}: give both the same name")
    public_url = services.settings.public_url
    row = await pools.apply(session, body, public_url, address_of(request), caller.actor, services.now(), is_new=if_none_match == "*")
    return (await pools.describe(session, [row], public_url, services.now()))[0]


@router.delete("/pools/{name}", status_code=204)
async def delete_pool(
    name: Name,
    caller: Admin,
    services: ServicesDep,
    session: WriteSession,
    drain: Annotated[bool, Query(description="its nodes too: they are drained, then ended")] = False,
) -> None:
    """Delete a pool that has no nodes, or with `drain` its nodes as well."""
    await pools.delete(session, await pools.find(session, name, lock=True), caller.actor, services.now(), drain=drain)


@router.get("/launches", response_model=Page[NodeLaunch])
async def list_launches(
    session: ReadSession, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None
) -> Page[NodeLaunch] | JSONResponse:
    """Nodes that are to come, that are being ended at their providers, and that could not be started; those that have joined are nodes."""
    key = paging.decode(cursor, str)
    found = await rows.listed(session, str(key[0]) if key else None, limit + 1)
    return paging.only(paging.page_of(found, limit, launches.describe, lambda row: (row.id,)), NodeLaunch, fields)


@router.delete("/launches/{launch_id}", status_code=202)
async def cancel_launch(launch_id: str, caller: Admin, services: ServicesDep, session: WriteSession) -> NodeLaunch:
    """Cancel a node that has not joined yet; one that could not be started is taken off the list."""
    row = await launches.find(session, launch_id, lock=True)
    await launches.cancel(session, row, caller.actor, services.now())
    return launches.describe(row)


async def add_launches(
    request: Request, caller: Caller, services: Services, once: OnceOnly, session: AsyncSession, body: NodeRequest
) -> NodeLaunches:
    """Ask for the nodes that the body of POST /cluster/nodes describes."""
    cause, now, server = f"{caller.actor.name} asked for it", services.now(), server_for_nodes(request, services)
    by_command = body.pool is not None and (await pools.find(session, body.pool)).provider == MANUAL

    async def create() -> NodeLaunches:
        if body.pool is not None:
            found = await launches.request_of_pool(
                session, body.pool, body.count or 1, services.settings.public_url, caller.actor, cause, now
            )
        else:
            found = await launches.request_of_provider(session, body, server, caller.actor, cause, now)
        warning = nodes.warning_of_loopback(found[0].server) if by_command else None
        authority = joining.own_authority(services.settings)
        return NodeLaunches(launches=await launches.commands(session, found, caller.actor, authority, now), warning=warning)

    return await once.run(session, body, NodeLaunches, create, secret=by_command)
