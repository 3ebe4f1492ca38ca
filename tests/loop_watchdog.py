"""How long the callbacks of an event loop keep it from everything else.

Counted is CPU time of the loop's own thread, not time on the clock: on a machine that is shared a callback may be interrupted for long without
having done anything. So a callback that sleeps is not found; what computes, parses or builds is.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

#: What no request may take, and what a test lets it take: a busy machine's caches cost the same work twice.
GOAL_SECONDS = 0.020
ALLOWED_SECONDS = 0.060


@dataclass
class Watch:
    """What one thread's loop has done since `forget`."""

    thread: int
    longest: float = 0.0
    callback: str = "none"
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, seconds: float, handle: asyncio.Handle) -> None:
        with self._lock:
            if seconds > self.longest:
                self.longest, self.callback = seconds, repr(handle)

    def forget(self) -> None:
        with self._lock:
            self.longest, self.callback = 0.0, "none"

    def assert_free(self, seconds: float = ALLOWED_SECONDS) -> None:
        assert self.longest <= seconds, f"one callback kept the event loop for {self.longest * 1000:.0f} ms of CPU time: {self.callback}"


@contextmanager
def watched(thread: int | None = None) -> Iterator[Watch]:
    """Watches the loop of `thread` (default: the caller's). Only loops of asyncio itself, whose callbacks are Python's to call.

    The garbage collector rests meanwhile: what it takes goes by the whole process' objects, not by the request.
    """
    watch = Watch(thread if thread is not None else threading.get_ident())
    run: Any = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        if threading.get_ident() != watch.thread:
            run(handle)
            return
        before = time.thread_time()
        run(handle)
        watch.note(time.thread_time() - before, handle)

    collected = gc.isenabled()
    gc.disable()
    asyncio.Handle._run = timed  # type: ignore[assignment]
    try:
        yield watch
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        if collected:
            gc.enable()
