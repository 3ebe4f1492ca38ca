"""What the trials of an experiment have used in all, whatever became of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.cluster.experiments.analysis.statistics import usable
from paceline.cluster.experiments.facts import TrialFacts


def slot_hours_of(trials: Sequence[TrialFacts]) -> float | None:
    """Return the slot-hours of all trials that have held slots; None: none has."""
    known = _amounts(trials, "slot_hours")
    return usable(sum(known)) if known else None


def energy_of(trials: Sequence[TrialFacts]) -> float | None:
    """Return the energy of all trials that have held slots, in joules; None where that of one is unknown: a sum without it would look like the whole."""
    held = [trial for trial in trials if trial.slot_hours]
    known = _amounts(held, "energy_joules")
    return usable(sum(known)) if known and len(known) == len(held) else None


def _amounts(trials: Sequence[TrialFacts], name: str) -> list[float]:
    found = (usable(getattr(trial, name)) for trial in trials)
    return [amount for amount in found if amount is not None and amount >= 0]
