"""The outermost gate, before anything is parsed: request ids, Host names, plain http from afar, the size of bodies.

Loopback is no protection by itself: a web page may resolve its own name to 127.0.0.1 (DNS rebinding) and then talk to us as
same-origin. So only Host names that we know are answered.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from api.errors import ProblemError
from api.problems import render
from api.settings import Settings
from cluster.protocol import UPLOAD_PATH

MAX_BODY_BYTES = 1 << 20
MAX_UPLOAD_BYTES = 4 << 20
REQUEST_ID = b"x-request-id"
#: Probes come to an address, not to a name, and learn nothing.
PROBES = frozenset({"/healthz", "/readyz"})
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


def host_name(host: str) -> str:
    """`Name:port` -> `name`; IPv6 keeps its brackets."""
    name = host.strip().lower()
    return name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]


def is_loopback(scope: Scope) -> bool:
    client = scope.get("client")
    if client is None:  # a Unix socket
        return True
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def refusal(scope: Scope, settings: Settings) -> ProblemError | None:
    """Why this connection gets no answer, or None."""
    if scope["path"] in PROBES:
        return None
    host = host_name(Headers(scope=scope).get("host", ""))
    if host not in settings.hosts:
        return ProblemError(
            "host_not_allowed",
            f"Host {host!r} is not one of {', '.join(sorted(settings.hosts))}; set PACELINE_ALLOWED_HOSTS={host} to allow it",
        )
    if scope["scheme"] in ("http", "ws") and not is_loopback(scope) and not settings.insecure_public:
        return ProblemError(
            "insecure_transport", "keys would travel readable; put TLS in front, or set PACELINE_INSECURE_PUBLIC=true to accept that"
        )
    return None


@dataclass(frozen=True)
class Gate:
    app: ASGIApp
    settings: Settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        request_id = str(ULID())
        scope.setdefault("state", {})["request_id"] = request_id
        refused = refusal(scope, self.settings)
        if refused is None:
            await self.app(scope, _limited(scope, receive), _labelled(send, request_id))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4403, "reason": refused.code})
        else:
            await render(Request(scope), refused)(scope, receive, _labelled(send, request_id))


def _labelled(send: Send, request_id: str) -> Send:
    async def labelled(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            headers.update({"X-Request-ID": request_id, **_HEADERS})
            message["headers"] = headers.raw
        await send(message)

    return labelled


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Stops reading a body at its limit, whatever its Content-Length claims."""
    if scope["type"] != "http":
        return receive
    limit = MAX_UPLOAD_BYTES if scope["path"] == UPLOAD_PATH else MAX_BODY_BYTES
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise HTTPException(413, f"the body is over {limit} bytes; send it in smaller parts")
        return message

    return limited
