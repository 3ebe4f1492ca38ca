"""How long to wait between two attempts of what may fail for a while."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

#: 2 to the power of this is more than any ratio of a longest to a first delay, and still a float.
MOST_DOUBLINGS = 64


async def asyncio_sleep(seconds: float) -> None:
    import asyncio  # takes a while: the command line only asks for seconds, and should start fast

    await asyncio.sleep(seconds)


def doubled(first_seconds: float, longest_seconds: float, failures: int) -> float:
    """Return the seconds after this many failures in a row, one or more: the first, twice as many after each further one, up to the longest."""
    return min(first_seconds * 2.0 ** min(failures - 1, MOST_DOUBLINGS), longest_seconds)


class Backoff:
    """Delays that double from attempt to attempt up to a limit, with full jitter: each is drawn evenly from zero to what it may be, so that
    many that failed at one moment do not come back at one.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. `fraction` draws from 0 to 1; `sleep` is what `pause` awaits, by default that of asyncio.
    """

    def __init__(
        self,
        first_seconds: float,
        longest_seconds: float,
        *,
        fraction: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[object]] = asyncio_sleep,
    ) -> None:
        self._first, self._longest = first_seconds, longest_seconds
        self._fraction, self._sleep = fraction, sleep
        self.failures = 0  # in a row

    def reset(self) -> None:
        """Begin with the first delay again: an attempt has succeeded."""
        self.failures = 0

    def next_seconds(self) -> float:
        """Count a failed attempt, and return how long to wait before the next one."""
        self.failures += 1
        return self.seconds_after(self.failures)

    def seconds_after(self, failures: int) -> float:
        """How long to wait after this many failed attempts in a row, one or more, for those who count themselves."""
        return doubled(self._first, self._longest, failures) * self._fraction()

    async def pause(self) -> None:
        """Count a failed attempt, and wait until it is time for the next one."""
        await self._sleep(self.next_seconds())
