"""Limits how much of something is under way at once: the rest waits its turn, for a bounded time.

async with admission.turn(size):        raises ProblemError `busy`, with Retry-After, when no turn came in time
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from paceline.api.errors import ProblemError


@dataclass(eq=False)
class Admission:
    """A limit: `what` may take `limit` units in all. Turns are given in the order in which they were asked for."""

    what: str
    limit: int
    wait_seconds: float
    _used: int = 0
    _waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)

    @asynccontextmanager
    async def turn(self, size: int = 1) -> AsyncIterator[None]:
        size = max(1, min(size, self.limit))
        await self._take(size)
        try:
            yield
        finally:
            self._used -= size
            self._pass_on()

    @property
    def used(self) -> int:
        return self._used

    async def _take(self, size: int) -> None:
        if not self._waiting and self._used + size <= self.limit:
            self._used += size
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, mine))
        try:
            async with asyncio.timeout(self.wait_seconds):
                await mine
        except BaseException as error:
            self._leave(size, mine)
            if isinstance(error, TimeoutError):
                text = f"{self._used} of {self.limit} {self.what} are under way, and no turn came within {self.wait_seconds:g} s; try again"
                raise ProblemError("busy", text, headers={"Retry-After": "1"}) from None
            raise

    def _leave(self, size: int, mine: asyncio.Future[None]) -> None:
        """Leave the queue. A turn that was given in the very moment of leaving is given back."""
        if (size, mine) in self._waiting:
            self._waiting.remove((size, mine))
        elif mine.done() and not mine.cancelled():
            self._used -= size
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._used + self._waiting[0][0] <= self.limit):
            size, following = self._waiting.popleft()
            if not following.done():
                self._used += size
                following.set_result(None)
