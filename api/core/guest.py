"""The guest of a coordinator with MOCK_DB: an admin without signing in, for what comes from this machine and from nowhere else.

Loopback alone proves nothing (see `middleware/gate.py`), so a guest is whoever comes from a loopback address, asks for a loopback Host,
came through no proxy that says so, and is no page of another site. Whatever changes something needs the CSRF token too where a browser
sends it; programs send neither Origin nor Sec-Fetch-Site, which every browser does with a request that another site makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.api.core.identity import Caller
from paceline.api.core.loopback import host_name, is_loopback
from paceline.api.core.origin import check_csrf, same_origin
from paceline.api.settings import LOOPBACK_NAMES

if TYPE_CHECKING:
    from fastapi.requests import (
        HTTPConnection,  # this is imported beside `Services`, also by worker processes, which have no use for fastapi
    )

#: A proxy says by these that somebody else asks.
_OF_A_PROXY = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_OF_A_BROWSER = ("origin", "sec-fetch-site")


@dataclass
class GuestPass:
    """The caller that guests are; None: there are no guests, as everywhere but with MOCK_DB."""

    caller: Caller | None = None

    def admit(self, connection: HTTPConnection) -> Caller | None:
        """The guest, where this connection may be one."""
        if self.caller is None or not is_loopback(connection.scope):
            return None
        headers = connection.headers
        if host_name(headers.get("host", "")) not in LOOPBACK_NAMES or any(name in headers for name in _OF_A_PROXY):
            return None
        return self.caller if same_origin(connection) else None


def check_guest(request: HTTPConnection, caller: Caller) -> None:
    """Check an unsafe request of a guest: one of a browser needs the token that only our own page can read."""
    if any(name in request.headers for name in _OF_A_BROWSER):
        check_csrf(request, caller.csrf_token or "")
