"""A sliding window per peer, for the doors where secrets could be guessed. Each door has its own: a peer that fails at one is not locked
out of the other."""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fastapi.requests import HTTPConnection

from paceline.api.errors import ProblemError

MAX_PEERS = 10_000
#: The leading bits of an IPv6 address that tell peers apart: all addresses that one subscriber has count as one peer.
SUBSCRIBER_BITS = 64


def peer_of(connection: HTTPConnection) -> str:
    """The peer of a request, as far as its address tells: an IPv4 address, or the network of an IPv6 one."""
    host = connection.client.host if connection.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a Unix socket
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), SUBSCRIBER_BITS), strict=False))


@dataclass
class RateLimit:
    """A limit of `attempts` failures per `window` from one peer. Successes do not count.

    Failures are kept of the last `max_peers` peers that failed; beyond them the peer whose last failure is longest ago is forgotten.
    """

    attempts: int = 10
    window: timedelta = timedelta(minutes=1)
    max_peers: int = MAX_PEERS
    _failures: OrderedDict[str, deque[datetime]] = field(default_factory=OrderedDict)

    def check(self, peer: str, now: datetime) -> None:
        failures = self._recent(peer, now)
        if len(failures) >= self.attempts:
            wait = math.ceil((failures[0] + self.window - now).total_seconds())
            raise ProblemError(
                "rate_limited",
                f"{len(failures)} failed attempts in the last {self.window.total_seconds():.0f} s; try again in {wait} s",
                headers={"Retry-After": str(max(1, wait))},
            )

    def failed(self, peer: str, now: datetime) -> None:
        failures = self._failures.setdefault(peer, deque(maxlen=self.attempts))
        failures.append(now)
        self._failures.move_to_end(peer)
        if len(self._failures) > self.max_peers:
            self._failures.popitem(last=False)

    def _recent(self, peer: str, now: datetime) -> deque[datetime]:
        failures = self._failures.get(peer, deque())
        while failures and failures[0] <= now - self.window:
            failures.popleft()
        return failures
