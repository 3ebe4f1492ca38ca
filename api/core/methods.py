"""The methods of a path: a 405 names every one of them in its Allow, as RFC 9110 has it."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import compile_path


def allowed_methods(app: FastAPI, path: str) -> list[str]:
    """The methods that the API, or outside of it the dashboard, answers at this path; empty: none."""
    found: set[str] = set()
    for route in iter_route_contexts(app.routes):
        beside = path.startswith("/api/") and not (route.path or "").startswith("/api/")
        if route.path and route.methods and not beside and compile_path(route.path)[0].match(path):
            found |= route.methods
    return sorted(found | ({"HEAD"} if "GET" in found else set()))
