"""Nodes: look at, add, cordon, drain and remove."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from paceline.api.core import paging
from paceline.api.core.lists import members, numbers, require_zone
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import Admin, ReadSession, ServicesDep, WriteSession
from paceline.api.errors import ProblemError
from paceline.api.routes.provisioning import add_launches, server_for_nodes
from paceline.api.schemas.common import Page
from paceline.api.schemas.nodes import GpuStatus, Node, NodeInvitation, NodeLaunches, NodeRequest, NodeTaintChange, NodeTaints
from paceline.api.schemas.readings import IdleCards, NodeMetrics
from paceline.api.services.history import idle_cards
from paceline.api.services.jobs.idempotency import Once
from paceline.api.services.nodes import joining, nodes
from paceline.api.services.nodes import node_metrics as service
from paceline.api.services.nodes.node_metrics import TimeSpan
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows
from paceline.monitoring.readings import CARD_METRICS, HOST_METRICS, NETWORK_METRICS

router = APIRouter(prefix="/cluster", tags=["cluster"])
MAX_CARDS = 64
#: Of an hour this is the 10 s of the finest roll-up: 360 buckets, one more where the edges cut two of them.
USUAL_BUCKETS = 400


@router.get("/nodes", response_model=Page[Node])
async def list_nodes(
    services: ServicesDep,
    session: ReadSession,
    cursor: Cursor = None,
    limit: Limit = 50,
    status: Annotated[str | None, Query(description="states, comma-separated; default: all but gone")] = None,
    fields: Fields = None,
) -> Page[Node] | JSONResponse:
    after = paging.decode(cursor, str, str)
    rows = await node_rows.page(session, nodes.parse_states(status), (str(after[0]), str(after[1])) if after else None, limit + 1)
    holders, now = slot_rows.by_node(await slot_rows.holders(session)), services.now()
    page = paging.page_of(rows, limit, lambda node: nodes.describe_with(node, holders[node.id], now), lambda node: (node.name, node.id))
    return paging.only(page, Node, fields)


@router.post("/nodes", status_code=201)
async def add_node(
    request: Request, caller: Admin, services: ServicesDep, once: Once, session: WriteSession, body: NodeRequest | None = None
) -> NodeInvitation | NodeLaunches:
    """Launch nodes of a pool, or of a provider that the body describes; without either, make a single-use token, and the command to run on the
    new machine. Needs no body: every field has a default."""
    body = body or NodeRequest()
    if body.pool is None and body.provider is None:
        server, lifetime = server_for_nodes(request, services), timedelta(seconds=body.expires_in_seconds)
        authority = joining.own_authority(services.settings)
        return await once.run(
            session,
            body,
            NodeInvitation,
            lambda: nodes.invite(session, caller.actor, lifetime, server, authority, services.now()),
            secret=True,
        )
    return await add_launches(request, caller, services, once, session, body)


@router.get("/nodes/{node_id}")
async def get_node(node_id: str, services: ServicesDep, session: ReadSession) -> Node:
    return await nodes.describe(session, await nodes.find(session, node_id), services.now())


@router.get("/nodes/{node_id}/metrics")
async def node_metrics(
    node_id: str,
    services: ServicesDep,
    session: ReadSession,
    since: Annotated[datetime | None, Query(description="with a time zone; default: an hour before `until`")] = None,
    until: Annotated[datetime | None, Query(description="default: now")] = None,
    names: Annotated[str | None, Query(description="power_watts,cpu_percent; default: all")] = None,
    cards: Annotated[str | None, Query(description="0,1: these cards alone; default: the node and all of its cards")] = None,
    buckets: Annotated[int, Query(ge=2, le=2000, description="at most so many of each curve")] = USUAL_BUCKETS,
) -> NodeMetrics:
    """Readings of the node, its cards and its network interfaces over time, also of a node that is gone."""
    node = await nodes.find(session, node_id)
    now = services.now()
    span = readings_span(since, until, now)
    async with services.metrics.read() as points:
        return await service.node_metrics(
            points,
            node,
            span,
            names=members("names", names, {*HOST_METRICS, *CARD_METRICS, *NETWORK_METRICS}),
            cards=numbers("cards", cards, most=MAX_CARDS),
            most=buckets,
            now=now.timestamp(),
            keep=services.settings.keep.readings,
        )


def readings_span(since: datetime | None, until: datetime | None, now: datetime) -> TimeSpan:
    """The span from `since` to `until`. Raises ProblemError where a time has no zone, or the span has no length."""
    for name, time in (("since", since), ("until", until)):
        require_zone(name, time)
    last = until or now
    first = since or last - timedelta(hours=1)
    if first >= last:
        raise ProblemError("invalid_parameter", f"since={first.isoformat()} is not before until={last.isoformat()}")
    return TimeSpan(first.timestamp(), last.timestamp())


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


@router.put("/nodes/{node_id}/taints")
async def set_node_taints(node_id: str, body: NodeTaints, caller: Admin, services: ServicesDep, session: WriteSession) -> Node:
    """Give the node these taints and no others: new jobs go there only if they tolerate them. Jobs that run there go on."""
    node = await nodes.find(session, node_id, lock=True)
    await nodes.taint(session, node, body.taints, caller.actor, services.now())
    return await nodes.describe(session, node, services.now())


@router.patch("/nodes/{node_id}/taints")
async def change_node_taints(node_id: str, body: NodeTaintChange, caller: Admin, services: ServicesDep, session: WriteSession) -> Node:
    """Add taints and take others off, in one change: what someone else has changed meanwhile stays."""
    node = await nodes.find(session, node_id, lock=True)
    await nodes.change_taints(session, node, body.set, body.remove, caller.actor, services.now())
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


@router.get("/idle-cards")
async def cards_held_and_idle(services: ServicesDep, session: ReadSession) -> IdleCards:
    """Cards that jobs hold and have used for less than 5% of the last five minutes."""
    async with services.metrics.read() as points:
        return await idle_cards.of_cluster(session, points, services.now())


@router.get("/gpu-status")
async def gpu_status(services: ServicesDep, session: ReadSession) -> GpuStatus:
    return await nodes.gpu_status(session, services.now())
