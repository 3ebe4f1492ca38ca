"""Calls that a file system may hold up: so many at a time, and each is waited for so long."""

from __future__ import annotations

import threading

from paceline.api.core.daemon_calls import DaemonCalls


class SlowRoom(threading.Semaphore):
    """The thread that leaves it is held up on the way out."""

    def release(self, n: int = 1) -> None:
        threading.Event().wait(0.1)
        super().release(n)


async def test_a_call_that_has_answered_has_left_its_room_to_the_next() -> None:
    """The next one was refused, as though a file system hung, where it came before the thread was out."""
    calls = DaemonCalls(1)
    calls._room = SlowRoom(1)
    for _ in range(2):
        assert await calls.run(lambda: "answer", 60.0) == "answer"
