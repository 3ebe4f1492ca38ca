"""HTTP methods as RFC 9110 has them: HEAD wherever GET is, and in a 405 an Allow that names every method of the path."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class HeadAsGet:
    """Answers HEAD with what GET would answer, without its body. `request.state.head` tells a route that its body is not wanted."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self.app({**scope, "method": "GET", "state": {**scope.get("state", {}), "head": True}}, receive, without_body)


def allowed_methods(app: FastAPI, path: str) -> list[str]:
    """What the API, or outside of it the dashboard, answers at this path; empty: there is nothing."""
    found: set[str] = set()
    for route in iter_route_contexts(app.routes):
        beside = path.startswith("/api/") and not (route.path or "").startswith("/api/")
        if route.path and route.methods and not beside and compile_path(route.path)[0].match(path):
            found |= route.methods
    return sorted(found | ({"HEAD"} if "GET" in found else set()))
