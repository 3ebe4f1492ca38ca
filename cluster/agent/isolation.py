"""Keeps failures apart: a failure is reported and ends neither the work beside it nor the loop that it came up in."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator

from paceline.cluster.agent.errors import AgentError
from paceline.monitoring.backoff import Backoff

REPORT_AGAIN_SECONDS = 600.0
FIRST_RESTART_SECONDS = 0.5
LONGEST_RESTART_SECONDS = 30.0
MAX_REMEMBERED = 1_000

log = logging.getLogger(__name__)


class Isolation:
    """Runs parts that must not end each other. The same failure of the same part is logged once in REPORT_AGAIN_SECONDS."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str], float] = {}

    @contextlib.contextmanager
    def of(self, part: str) -> Iterator[None]:
        """A context in which an exception is logged as the failure of `part`, with its traceback; the caller goes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this part alone
            self.report(part, error)

    def report(self, part: str, error: Exception) -> None:
        trouble, now = (part, repr(error)), time.monotonic()
        if now - self._reported.get(trouble, -REPORT_AGAIN_SECONDS) < REPORT_AGAIN_SECONDS:
            return
        if len(self._reported) >= MAX_REMEMBERED:
            self._reported.clear()
        self._reported[trouble] = now
        log.error("%s: %s; everything else goes on", part, str(error) or type(error).__name__, exc_info=error)

    async def keep_running(self, part: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` until it returns by itself: after an exception it is started again. An AgentError concerns the whole agent and is
        raised."""
        backoff = Backoff(FIRST_RESTART_SECONDS, LONGEST_RESTART_SECONDS)
        while True:
            started = time.monotonic()
            try:
                return await work()
            except AgentError:
                raise
            except Exception as error:  # noqa: BLE001 - told, and begun again
                self.report(part, error)
            if time.monotonic() - started > LONGEST_RESTART_SECONDS:
                backoff.reset()
            await backoff.pause()
