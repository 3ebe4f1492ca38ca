"""Ties a request to our own pages: the session cookie, the CSRF header, Origin and Sec-Fetch-Site."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from paceline.api.errors import ProblemError

if TYPE_CHECKING:
    from fastapi.requests import HTTPConnection
    from starlette.responses import Response

SECURE_COOKIE = "__Host-paceline"  # the prefix makes browsers insist on Secure, Path=/ and no Domain
PLAIN_COOKIE = "paceline_session"  # over http
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "x-csrf-token"


#: What a User-Agent names: the first of these that is found, since Edge also calls itself Chrome, and Chrome Safari.
_BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def device_of(connection: HTTPConnection) -> str | None:
    """The browser and the system that a request names, such as "Firefox on Linux"; None where it names neither."""
    agent = connection.headers.get("user-agent", "")
    named = (next((name for sign, name in signs if sign in agent), None) for signs in (_BROWSERS, _SYSTEMS))
    return " on ".join(name for name in named if name) or None


def address_of(connection: HTTPConnection) -> str:
    """The peer's address. Behind a proxy that uvicorn is told to trust it is the one that the proxy names."""
    return connection.client.host if connection.client else ""


def is_secure(connection: HTTPConnection) -> bool:
    return connection.url.scheme in ("https", "wss")


def cookie_name(connection: HTTPConnection) -> str:
    """The name of the session cookie. All ports of a host share its cookies: the port in the name keeps the coordinators of one machine apart."""
    name = SECURE_COOKIE if is_secure(connection) else PLAIN_COOKIE
    port = connection.headers.get("host", "").rpartition(":")[2]  # as the browser knows it
    return f"{name}_{port}" if port.isdecimal() and port.isascii() else name


def session_cookie(connection: HTTPConnection) -> str | None:
    return connection.cookies.get(cookie_name(connection))


def set_session_cookie(response: Response, connection: HTTPConnection, secret: str, seconds: int) -> None:
    secure = is_secure(connection)
    response.set_cookie(cookie_name(connection), secret, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax")


def clear_session_cookie(response: Response, connection: HTTPConnection) -> None:
    secure = is_secure(connection)
    response.delete_cookie(cookie_name(connection), path="/", secure=secure, httponly=True, samesite="lax")


def same_origin(connection: HTTPConnection) -> bool:
    """Whether the browser says that one of our own pages asks. Clients that are no browsers send neither header."""
    site = connection.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = connection.headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == connection.headers.get("host", "").lower()


def check_csrf(request: HTTPConnection, token: str) -> None:
    """Check a request with a cookie: unsafe methods need the header that only our own page can send."""
    if request.scope["method"] in SAFE_METHODS:
        return
    if not same_origin(request):
        raise ProblemError(
            "csrf", f"an unsafe request from {request.headers.get('origin', 'another site')} was refused; use the dashboard itself"
        )
    if not hmac.compare_digest(request.headers.get(CSRF_HEADER, "").encode(), token.encode()):
        raise ProblemError(
            "csrf",
            "this is not the token of the browser's present session: try again, or reload the page. Programs send the csrf_token of "
            "GET /api/v1/auth/me as X-CSRF-Token, or use an API key",
        )
