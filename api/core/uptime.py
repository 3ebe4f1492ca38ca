"""Since when this process has been up without a break. The silence of agents means nothing while it could not hear them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

#: A longer pause between two turns of any of the loops is a stall of the process; so is a step of its clock.
STALL_SECONDS = 3.0


@dataclass
class Uptime:
    """Held by `Services`: each turn of a loop is noted here."""

    #: The first turn, or the first one after the last stall. None: there has been no turn.
    since: datetime | None = None
    _noted_at: datetime | None = None

    def note(self, now: datetime, *, anew: bool = False) -> None:
        """Note a turn. `anew`: the process takes over from another one, which agents may have been connected to."""
        if anew or self._noted_at is None or abs(now - self._noted_at) > timedelta(seconds=STALL_SECONDS):
            self.since = now
        self._noted_at = now
