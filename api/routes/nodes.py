"""Nodes: look at, add, cordon, drain and remove."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request

from paceline.api.core import paging
from paceline.api.core.paging import Cursor, Limit
from paceline.api.deps import Admin, ReadSession, ServicesDep, WriteSession
from paceline.api.schemas.common import Page
from paceline.api.schemas.nodes import GpuStatus, Node, NodeInvitation, NodeRequest
from paceline.api.services.jobs.idempotency import Once
from paceline.api.services.nodes import nodes
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows

router = APIRouter(prefix="/cluster", tags=["cluster"])


@router.get("/nodes")
async def list_nodes(
    services: ServicesDep,
    session: ReadSession,
    cursor: Cursor = None,
    limit: Limit = 50,
    status: Annotated[str | None, Query(description="states, comma-separated; default: all but gone")] = None,
) -> Page[Node]:
    after = paging.decode(cursor, str, str)
    rows = await node_rows.page(session, nodes.parse_states(status), (str(after[0]), str(after[1])) if after else None, limit + 1)
    holders, now = await job_rows.holders(session), services.now()
    return paging.page_of(rows, limit, lambda node: nodes.describe_with(node, holders, now), lambda node: (node.name, node.id))


@router.post("/nodes", status_code=201)
async def add_node(
    body: NodeRequest, request: Request, caller: Admin, services: ServicesDep, once: Once, session: WriteSession
) -> NodeInvitation:
    """Make a single-use token, and the command to run on the new machine."""
    server = services.settings.public_url or str(request.base_url).rstrip("/")
    lifetime = timedelta(seconds=body.expires_in_seconds)
    return await once.run(
        session, body, NodeInvitation, lambda: nodes.invite(session, caller.actor, lifetime, server, services.now()), secret=True
    )


@router.get("/nodes/{node_id}")
async def get_node(node_id: str, services: ServicesDep, session: ReadSession) -> Node:
    return await nodes.describe(session, await nodes.find(session, node_id), services.now())


@router.put("/nodes/{node_id}/cordon")
async def cordon_node(node_id: str, caller: Admin, services: ServicesDep, session: WriteSession) -> Node:
    """Place nothing new on the node; jobs that run on it go on."""
    node = await nodes.find(session, node_id, lock=True)
    await nodes.cordon(session, node, caller.actor, services.now())
    return await nodes.describe(session, node, services.now())


@router.put("/nodes/{node_id}/uncordon")
async def uncordon_node(node_id: str, caller: Admin, services: ServicesDep, session: WriteSession) -> Node:
    """Place jobs on the node again. Also takes back a removal that still waits for jobs."""
    node = await nodes.find(session, node_id, lock=True)
    await nodes.uncordon(session, node, caller.actor, services.now())
    return await nodes.describe(session, node, services.now())


@router.delete("/nodes/{node_id}", status_code=202)
async def remove_node(
    node_id: str,
    caller: Admin,
    services: ServicesDep,
    session: WriteSession,
    force: Annotated[bool, Query(description="do not wait for its jobs: they recover elsewhere")] = False,
) -> Node:
    """Drain, then remove the node. `drain_blocked_by` names the jobs that are waited for."""
    node = await nodes.find(session, node_id, lock=True)
    await nodes.remove(session, node, caller.actor, services.now(), force=force)
    return await nodes.describe(session, node, services.now())


@router.get("/gpu-status")
async def gpu_status(services: ServicesDep, session: ReadSession) -> GpuStatus:
    return await nodes.gpu_status(session, services.now())
