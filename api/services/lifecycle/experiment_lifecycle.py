"""The one writer of experiments' states. An experiment's row is locked by whoever moves it, so that two never do at once."""

from __future__ import annotations

from datetime import datetime

from paceline.cluster.experiments.schedule import ExperimentState
from paceline.db.models.experiments import ExperimentRow

#: States in which there is nothing left to pause or to cancel.
OVER: frozenset[str] = frozenset({"completed", "cancelled"})


def move(row: ExperimentRow, state: ExperimentState, why: str, now: datetime) -> None:
    """Put the experiment, whose row is locked, into a state; the loop carries out what follows."""
    if row.state == "running":
        row.ran_seconds = max(0.0, row.ran_seconds + (now - row.state_since).total_seconds())
    row.state, row.state_since, row.state_why, row.settled = state, now, why, False
    row.ended_at = now if state in OVER else None
    row.version += 1
