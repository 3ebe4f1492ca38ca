"""Since when this process has been up without a break. The silence of agents means nothing while it could not hear them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: A longer pause between two turns of any of the loops is a stall of the process; so is a step of its clock.
STALL_SECONDS = 3.0
#: By so much the clock may differ from the time that passed between two turns, and was not set.
CLOCK_STEP_SECONDS = 10.0


@dataclass
class Uptime:
    """Held by `Services`: each turn of a loop is noted here."""

    #: The first turn, or the first one after the last stall. None: there has been no turn.
    since: datetime | None = None
    #: The first turn, or the first one after the clock was set, or the machine suspended. None: there has been no turn.
    clock_steady_since: datetime | None = None
    #: By how many seconds the clock was set since the scheduler has last made up for it.
    clock_step: float = 0.0
    monotonic: Callable[[], float] = time.monotonic
    _noted_at: datetime | None = None
    _noted_monotonic: float = 0.0

    def note(self, now: datetime, *, anew: bool = False) -> None:
        """Note a turn. `anew`: the process takes over from another one, which agents may have been connected to."""
        monotonic = self.monotonic()
        if self._noted_at is None:
            self.since = self.clock_steady_since = now
        else:
            between = now - self._noted_at
            step = between.total_seconds() - (monotonic - self._noted_monotonic)
            if anew or abs(between) > timedelta(seconds=STALL_SECONDS):
                self.since = now
            if abs(step) > CLOCK_STEP_SECONDS:
                self.clock_steady_since = now
                self.clock_step += step
        if anew:
            self.clock_step = 0.0  # that process had a clock of its own
        self._noted_at, self._noted_monotonic = now, monotonic
