"""No body of a request to the API is read before its sender is known, whichever route it is for.

FastAPI reads and parses a body first and asks for identity with the route's other dependencies. So this stands before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from paceline.api.deps import identified
from paceline.api.errors import ProblemError
from paceline.api.middleware.gate import LOGIN_PATH
from paceline.api.problems import render, too_busy
from paceline.db.errors import DatabaseBusyError

API = "/api/"
#: These check for themselves: the way in, and what agents say with a credential of their own.
OWN_DOORS = (LOGIN_PATH, "/api/v1/agents/")


@dataclass(frozen=True)
class IdentityFirst:
    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_asked(scope):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        try:
            await identified(request)
        except ProblemError as problem:
            await render(request, problem)(scope, receive, send)
        except DatabaseBusyError as error:
            await render(request, too_busy(error))(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def _is_asked(scope: Scope) -> bool:
    if scope["type"] != "http" or not scope["path"].startswith(API) or scope["path"].startswith(OWN_DOORS):
        return False
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
