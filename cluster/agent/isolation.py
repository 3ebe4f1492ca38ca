"""What goes wrong with one thing is told and ends nothing else: neither its neighbours nor the loop that it came up in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator

from cluster.agent.errors import AgentError

TELL_AGAIN_SECONDS = 600.0
FIRST_RESTART_SECONDS = 0.5
LONGEST_RESTART_SECONDS = 30.0
MAX_REMEMBERED = 1_000

log = logging.getLogger(__name__)


class Isolation:
    """Runs parts that must not end each other. The same trouble of the same part is logged once in TELL_AGAIN_SECONDS."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], float] = {}

    @contextlib.contextmanager
    def of(self, part: str) -> Iterator[None]:
        """What is raised inside is logged as the trouble of `part`, with its traceback; the caller goes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this part alone
            self.tell(part, error)

    def tell(self, part: str, error: Exception) -> None:
        trouble, now = (part, repr(error)), time.monotonic()
        if now - self._told.get(trouble, -TELL_AGAIN_SECONDS) < TELL_AGAIN_SECONDS:
            return
        if len(self._told) >= MAX_REMEMBERED:
            self._told.clear()
        self._told[trouble] = now
        log.error("%s: %s; everything else goes on", part, error or type(error).__name__, exc_info=error)

    async def keep_running(self, part: str, work: Callable[[], Awaitable[None]]) -> None:
        """Until `work` returns by itself: one that raises is started over. An AgentError is meant for the whole agent and raised."""
        pause = FIRST_RESTART_SECONDS
        while True:
            started = time.monotonic()
            try:
                return await work()
            except AgentError:
                raise
            except Exception as error:  # noqa: BLE001 - told, and begun again
                self.tell(part, error)
            pause = FIRST_RESTART_SECONDS if time.monotonic() - started > LONGEST_RESTART_SECONDS else pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_RESTART_SECONDS)
