"""Waiting for something that sends no signal: polled, with a deadline that names what did not happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

POLL_SECONDS = 0.01


def wait_until(condition: Callable[[], object], what: str, *, seconds: float) -> None:
    """For tests without an event loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(POLL_SECONDS)


async def until(condition: Callable[[], object], what: str, *, seconds: float = 30.0) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - nothing to await: the condition belongs to others
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {seconds} s") from None
