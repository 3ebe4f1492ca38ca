"""The time of a simulated cluster: how long what is modelled takes by the clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

#: A job shows no more steps in a second: nobody could read them.
MOST_STEPS_PER_SECOND = 5.0
#: What one process records at most, over all its ranks: two cores are to be enough for it and its coordinator.
MOST_RECORDS_PER_SECOND = 3_000.0


@dataclass
class SimulatedClock:
    """`speedup` modelled seconds pass in one of the clock's. `running_ranks` of all gangs share what may be recorded.

    What ranks measure is modelled time, their time stamps are the clock's: a job with steps of 6 s at speedup 60 records steps of 6 s, five
    of them in a second.
    """

    speedup: float = 1.0
    running_ranks: int = 0

    def seconds(self, modelled: float) -> float:
        """The clock's seconds for so many modelled ones."""
        return modelled / self.speedup

    def of_step(self, modelled: float) -> float:
        """The clock's seconds for a step of so many modelled ones: it takes longer where too much would be recorded."""
        least = max(1 / MOST_STEPS_PER_SECOND, self.running_ranks / MOST_RECORDS_PER_SECOND)
        return max(least, self.seconds(modelled))

    async def sleep(self, modelled: float, *, least: float = 0.0) -> None:
        await asyncio.sleep(max(least, self.seconds(modelled)))
