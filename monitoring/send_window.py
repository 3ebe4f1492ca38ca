"""A sender's part of flow control: how many bytes it may still send before its peer has taken some."""

from __future__ import annotations

import asyncio


class SendWindow:
    """Counts bytes that may be sent. `room` waits while there are none."""

    def __init__(self, bytes: int) -> None:
        self._left = bytes
        self._grown = asyncio.Event()

    async def room(self, most: int) -> int:
        """Wait until something may be sent. Returns how much, `most` at most."""
        while self._left <= 0:
            self._grown.clear()
            await self._grown.wait()
        return min(self._left, most)

    def spend(self, bytes: int) -> None:
        self._left -= bytes

    def grow(self, bytes: int) -> None:
        """The peer has taken so many bytes."""
        self._left += max(0, bytes)
        self._grown.set()
