"""Calls that a file system may hold up for ever: each is made in a thread of its own, which ends with the process, and waited for so long.

The threads of `asyncio.to_thread` are few, and the process waits for them at its end: a file system that hangs must take none of them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


class AllCallsStuckError(Exception):
    """As many calls as may be under way have not come back."""


@dataclass
class DaemonCalls:
    """At most `limit` calls under way, those included that nobody waits for any more."""

    limit: int
    _room: threading.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._room = threading.Semaphore(self.limit)

    async def run(self, call: Callable[[], T], seconds: float) -> T:
        """Return what `call` returns. Raises what it raises, TimeoutError where it takes longer, or AllCallsStuckError at once."""
        if not self._room.acquire(blocking=False):
            raise AllCallsStuckError
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        answer.set_running_or_notify_cancel()
        threading.Thread(target=self._answer, args=(answer, call), daemon=True, name="daemon call").start()
        return await asyncio.wait_for(asyncio.wrap_future(answer), seconds)

    def _answer(self, answer: concurrent.futures.Future[T], call: Callable[[], T]) -> None:
        """Make the call. Its room is left before its answer is there: who has that may make the next call at once."""
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._room.release()
            answer.set_exception(error)
        else:
            self._room.release()
            answer.set_result(result)
