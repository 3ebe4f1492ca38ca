"""The one writer's turn, handed from one transaction to the next: requests first, each kind in the order of coming."""

from __future__ import annotations

import asyncio
from collections import deque

from paceline.db.errors import DatabaseBusyError

#: After so many requests in a row, one transaction of the others has its turn: a flood of requests must not stop the loops.
MOST_IN_A_ROW = 8


class WriterTurns:
    def __init__(self) -> None:
        self._taken = False
        self._requests: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()
        self._in_a_row = 0

    @property
    def waiting_requests(self) -> int:
        return sum(not turn.done() for turn in self._requests)

    async def take(self, seconds: float, *, first: bool = False) -> None:
        """Take the writer's turn; `first`: before all others that are not. Raises DatabaseBusyError when the turn has not come within so
        many seconds."""
        if not self._taken:
            self._taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._requests if first else self._others).append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release()  # it came at the very moment in which we gave up
            turn.cancel()
            if isinstance(error, TimeoutError):
                raise DatabaseBusyError(f"the database was busy with other transactions for over {seconds:.0f} s; try again") from None
            raise

    def release(self) -> None:
        turn = self._next()
        if turn is None:
            self._taken = False
        else:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        for queue in (self._requests, self._others):
            while queue and queue[0].done():
                queue.popleft()
        if self._requests and (not self._others or self._in_a_row < MOST_IN_A_ROW):
            self._in_a_row += 1
            return self._requests.popleft()
        self._in_a_row = 0
        return self._others.popleft() if self._others else None
