"""Leads the request that comes most, the upload of an agent, past what only other requests need: compression, an identity before the body (the
upload asks for one itself), HEAD, and the search for a route. A tenth of a coordinator's time went there under a thousand agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from paceline.cluster.protocol import UPLOAD_PATH


@dataclass(frozen=True)
class UploadShortcut:
    """Hands uploads to `uploads`, and all other requests on."""

    app: ASGIApp
    uploads: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_upload = scope["type"] == "http" and scope["path"] == UPLOAD_PATH and scope["method"] == "POST"
        await (self.uploads if is_upload else self.app)(scope, receive, send)


def with_problems(app: ASGIApp, handlers: Mapping[Any, ExceptionHandler]) -> ASGIApp:
    """Return `app` with its exceptions answered by these handlers of the whole application; a bug is left to the handler of bugs, outside."""
    return ExceptionMiddleware(app, {kind: handler for kind, handler in handlers.items() if kind is not Exception})
