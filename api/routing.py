"""The routers, and their guards: everything under /api/v1 needs an identity unless it is listed as a door."""

from __future__ import annotations

import functools
from typing import Any

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from paceline.api.deps import identified
from paceline.api.middleware.parameters import known_parameters_only
from paceline.api.routes import (
    agents,
    artifacts,
    auth,
    bundles,
    charts,
    checkpoints,
    cluster,
    dashboard,
    document,
    documentation,
    events,
    experiment_reports,
    experiments,
    exposition,
    files,
    gradients,
    health,
    history,
    identity,
    jobs,
    logs,
    media,
    metrics,
    nodes,
    notifications,
    oidc,
    plan,
    provisioning,
    registry,
    saved_views,
    secrets,
    stacks,
    storage,
)
from paceline.api.schemas.common import Problem
from paceline.api.websocket import agents as agents_channel
from paceline.api.websocket import exec_sessions, streams

PREFIX = "/api/v1"
PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": {"model": Problem, "content": {"application/problem+json": {}}}}

#: Every route of these needs an identity.
GUARDED: tuple[APIRouter, ...] = tuple(
    room.router
    for room in (
        identity,
        events,
        metrics,
        logs,
        stacks,
        jobs,
        saved_views,
        secrets,
        charts,
        artifacts,
        bundles,
        files,
        gradients,
        media,
        history,
        plan,
        provisioning,
        nodes,
        cluster,
        storage,
        notifications,
        checkpoints,
        registry,
        experiment_reports,
        experiments,
        document,
    )
)
#: These check for themselves: they are the way in, or for machines with a credential of their own.
DOORS = (auth.router, oidc.router, agents.router)
#: WebSockets, which check before they accept.
SOCKETS = (streams.router, exec_sessions.router, agents_channel.router)


@functools.cache
def routes() -> tuple[BaseRoute, ...]:
    """All routes, made once for any number of apps: FastAPI takes a while to work out what the endpoints of an included router want, at its first request."""
    all_of_them = APIRouter()
    all_of_them.include_router(health.router, generate_unique_id_function=operation_id)
    all_of_them.include_router(exposition.router)
    for router in (*DOORS, *GUARDED):
        guards = ([Depends(identified)] if router in GUARDED else []) + [Depends(known_parameters_only)]
        all_of_them.include_router(router, prefix=PREFIX, dependencies=guards, responses=PROBLEMS, generate_unique_id_function=operation_id)
    for socket in SOCKETS:
        all_of_them.include_router(socket, prefix=PREFIX)
    all_of_them.include_router(documentation.router)
    all_of_them.include_router(dashboard.router)  # last: it answers every path that nothing else does
    return (agents.UPLOAD_ROUTE, *all_of_them.routes)  # its POST is answered by the shortcut before; other methods are refused by name here


def operation_id(route: APIRoute) -> str:
    """The function's name, which the generated clients call."""
    return route.name
