"""The outermost gate, before anything is parsed: request ids, Host names, plain http from afar, the size and the time of bodies.

Loopback is no protection by itself: a web page may resolve its own name to 127.0.0.1 (DNS rebinding) and then talk to us as
same-origin. So only Host names that we know are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from paceline.api.core.loopback import host_name, is_loopback
from paceline.api.errors import ProblemError
from paceline.api.problems import render
from paceline.api.settings import LOOPBACK_NAMES, Settings
from paceline.bundles.archive import MOST_TAR_BYTES
from paceline.cluster.protocol import ARTIFACTS_PATH, JOIN_PATH, UPLOAD_PATH
from paceline.monitoring.artifacts import CHUNK_BYTES

LOGIN_PATH, BUNDLES_PATH = "/api/v1/auth/login", "/api/v1/training/bundles/"
MAX_DIGITS = 19
MAX_ADDRESS_BYTES = 8 << 10
#: Probes come to an address, not to a name, and learn nothing.
PROBES = frozenset({"/healthz", "/readyz"})


@dataclass(frozen=True)
class BodyLimit:
    """How much of a body is read, and how long it may take to arrive."""

    bytes: int
    seconds: float


#: The limit for what people and programs ask for. Job specs are the longest.
ORDINARY = BodyLimit(64 << 10, seconds=10)
#: Where strangers may knock: a token and a name.
DOOR = BodyLimit(4 << 10, seconds=5)
UPLOAD = BodyLimit(4 << 20, seconds=60)
CHUNK = BodyLimit(CHUNK_BYTES, seconds=60)
#: The limit for a folder sent by a browser, which cannot pack: to a coordinator far away that takes its time.
FOLDER = BodyLimit(MOST_TAR_BYTES, seconds=600)
API = "/api/"
_HEADERS = {b"x-content-type-options": b"nosniff", b"referrer-policy": b"no-referrer"}
#: The content security policy of data: whatever a job has written into a log or a file is no page of ours.
DATA = b"default-src 'none'; frame-ancestors 'none'; sandbox"
ONE_YEAR = 365 * 24 * 3600


def page_rules(*inline_scripts: str) -> str:
    """Return the content security policy of a page of ours: its own files, no script or style sheet from elsewhere, no eval.

    Components set styles on elements. `inline_scripts` are the hashes of the scripts within the page that may run.
    """
    rules = (
        "default-src 'self'",
        " ".join(("script-src 'self'", *inline_scripts)),
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
    return "; ".join(rules)


def refusal(scope: Scope, settings: Settings) -> ProblemError | None:
    """Why this connection gets no answer, or None."""
    if scope["path"] in PROBES:
        return None
    if refused := _unreadable(scope):
        return refused
    named = Headers(scope=scope).getlist("host")
    if len(named) > 1:  # a proxy may have let it in by the one, and we would answer by the other
        return ProblemError("host_not_allowed", f"there are {len(named)} Host headers, {' and '.join(map(repr, named[:2]))}; send one")
    host = host_name("".join(named))
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


def _unreadable(scope: Scope) -> ProblemError | None:
    """Whether an address has characters that no file, database or log can take."""
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    if size > MAX_ADDRESS_BYTES:
        return ProblemError("address_too_long", f"path and query have {size} bytes; the limit is {MAX_ADDRESS_BYTES}")
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return ProblemError("invalid_parameter", "there is a NUL (%00) in the address; leave it out")
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
            await self.app(scope, _limited(scope, receive), send if scope["type"] == "websocket" else _labelled(scope, send, request_id))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4403, "reason": refused.code})
        else:
            await render(Request(scope), refused)(scope, receive, _labelled(scope, send, request_id))


def _labelled(scope: Scope, send: Send, request_id: str) -> Send:
    async def labelled(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            ours = {b"x-request-id": request_id.encode(), **_HEADERS, **_rules(scope, dict(given))}
            message["headers"] = [*(each for each in given if each[0] not in ours), *ours.items()]
        await send(message)

    return labelled


def _rules(scope: Scope, given: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The headers that tell browsers what to do with an answer: its rules, whether to keep it, whether to come by TLS ever after."""
    is_page = given.get(b"content-type", b"").startswith(b"text/html")
    rules = {b"content-security-policy": given.get(b"content-security-policy") or (page_rules().encode() if is_page else DATA)}
    if scope["path"].startswith(API) and b"cache-control" not in given and b"etag" not in given:
        rules[b"cache-control"] = b"no-store"  # keys, tokens, and who may do what
    if scope["scheme"] == "https" and host_name(Headers(scope=scope).get("host", "")) not in LOOPBACK_NAMES:
        rules[b"strict-transport-security"] = b"max-age=%d" % ONE_YEAR
    return rules


def body_limit(path: str) -> BodyLimit:
    if path == UPLOAD_PATH:
        return UPLOAD
    if path == BUNDLES_PATH.rstrip("/"):
        return FOLDER
    if path.startswith(ARTIFACTS_PATH + "/") or (path.startswith(BUNDLES_PATH) and "/chunks/" in path):
        return CHUNK
    return DOOR if path in (JOIN_PATH, LOGIN_PATH) else ORDINARY


def _limited(scope: Scope, receive: Receive) -> Receive:
    """A body that is read up to its limits: refused before its first byte where its header says that it is too long, and cut off
    whatever its header says."""
    if scope["type"] != "http":
        return receive
    limit, seen, complete = body_limit(scope["path"]), 0, False
    declared = Headers(scope=scope).get("content-length", "")
    deadline: float | None = None

    async def limited() -> Message:
        nonlocal seen, complete, deadline
        if complete:
            return await receive()  # what comes behind a body is the end of the connection, however late
        if declared.isdecimal() and len(declared) < MAX_DIGITS and int(declared) > limit.bytes:
            raise _too_long(limit, int(declared))
        deadline = deadline or asyncio.get_running_loop().time() + limit.seconds
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"the body was not here after {limit.seconds:g} s, {seen} bytes were; send it at once") from None
        seen += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if seen > limit.bytes:
            raise _too_long(limit, seen)
        return message

    return limited


def _too_long(limit: BodyLimit, size: int) -> HTTPException:
    return HTTPException(413, f"the body has {size} bytes or more; the limit here is {limit.bytes}: send it in smaller parts")
