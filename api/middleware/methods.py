"""Answers HEAD wherever GET is answered, as RFC 9110 has it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class HeadAsGet:
    """Answers HEAD as GET, without the body. `request.state.head` tells a route that its body is not wanted."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self.app({**scope, "method": "GET", "state": {**scope.get("state", {}), "head": True}}, receive, without_body)
