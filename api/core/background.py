"""Work beside the requests, for as long as the coordinator runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

logger = logging.getLogger(__name__)
RESTART_SECONDS = 1.0


@asynccontextmanager
async def in_background(name: str, work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """A context in which `work` runs; it is cancelled on the way out. An error that it does not handle is logged, and it starts over: a
    coordinator that answers requests but has stopped storing them would be worse than a dead one."""
    task = asyncio.create_task(_keep_running(name, work), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep_running(name: str, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            return await work()
        except Exception:
            logger.exception("%s failed; it starts over in %g s", name, RESTART_SECONDS)
        await asyncio.sleep(RESTART_SECONDS)
