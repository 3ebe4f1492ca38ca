"""Which routers there are, and what guards them: everything under /api/v1 needs an identity unless it is listed as a door."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute

from api.deps import identified
from api.middleware.parameters import known_parameters_only
from api.routes import dashboard, exposition, health
from api.schemas.common import Problem

PREFIX = "/api/v1"
PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": {"model": Problem, "content": {"application/problem+json": {}}}}

#: Routers whose every route needs an identity.
GUARDED = ("identity", "events", "metrics", "logs", "jobs", "plan", "nodes", "cluster", "checkpoints")
#: Routers that check for themselves: they are the way in, or machines with a credential of their own.
DOORS = ("auth", "agents")
#: WebSockets, which check before they accept.
SOCKETS = ("streams", "agents")


def include_routes(app: FastAPI) -> None:
    app.include_router(health.router, generate_unique_id_function=operation_id)
    app.include_router(exposition.router)
    for name in (*DOORS, *GUARDED):
        if importlib.util.find_spec(f"api.routes.{name}") is None:
            continue
        router = importlib.import_module(f"api.routes.{name}").router
        guards = ([Depends(identified)] if name in GUARDED else []) + [Depends(known_parameters_only)]
        app.include_router(router, prefix=PREFIX, dependencies=guards, responses=PROBLEMS, generate_unique_id_function=operation_id)
    for socket in SOCKETS:
        if importlib.util.find_spec(f"api.websocket.{socket}") is not None:
            app.include_router(importlib.import_module(f"api.websocket.{socket}").router, prefix=PREFIX)
    app.include_router(dashboard.router)  # last: it answers every path that nothing else does


def operation_id(route: APIRoute) -> str:
    """The function's name, which is what the generated clients call."""
    return route.name
