"""A sliding window per peer, for the doors where somebody could guess."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from api.errors import ProblemError

MAX_PEERS = 10_000


@dataclass
class RateLimit:
    """At most `attempts` failures per `window` from one peer. Successes do not count."""

    attempts: int = 10
    window: timedelta = timedelta(minutes=1)
    _failures: dict[str, deque[datetime]] = field(default_factory=dict)

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
        if len(self._failures) >= MAX_PEERS:
            self._failures.clear()
        self._failures.setdefault(peer, deque()).append(now)

    def _recent(self, peer: str, now: datetime) -> deque[datetime]:
        failures = self._failures.get(peer, deque())
        while failures and failures[0] <= now - self.window:
            failures.popleft()
        return failures
