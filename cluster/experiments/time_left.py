"""How long an experiment will still take, from the trials of it that have ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TrialTime:
    """Trials that are alike. `seconds`: how long they have held slots, all together."""

    world_size: int
    count: int
    seconds: float
    has_ended: bool  # completed: how long one takes. Otherwise it waits, or is on its way


def seconds_left(times: Sequence[TrialTime], side_by_side: int) -> float | None:
    """Return the seconds until the last trial ends, with so many side by side; None: no trial has ended."""
    ended = [each for each in times if each.has_ended]
    if not ended:
        return None
    left = sum(max(0.0, each.count * _seconds_of_one(ended, each.world_size) - each.seconds) for each in times if not each.has_ended)
    return left / max(1, side_by_side)


def still_to_draw(known: Sequence[TrialTime], count: int) -> list[TrialTime]:
    """Return so many trials of a search that it has not drawn yet: as large as those that are known, in the mean. Empty where count is not over 0."""
    trials = sum(each.count for each in known)
    size = round(sum(each.world_size * each.count for each in known) / trials) if trials else 1
    return [TrialTime(size, count, 0.0, has_ended=False)] if count > 0 else []


def slot_seconds_left(times: Sequence[TrialTime]) -> float | None:
    """Return the slot-seconds of the trials that have not ended; None: no trial has ended."""
    ended = [each for each in times if each.has_ended]
    if not ended:
        return None
    return sum(each.count * each.world_size * _seconds_of_one(ended, each.world_size) for each in times if not each.has_ended)


def _seconds_of_one(ended: Sequence[TrialTime], world_size: int) -> float:
    """The mean of trials of this size, or of all where none has ended."""
    alike = [each for each in ended if each.world_size == world_size] or ended
    return sum(each.seconds for each in alike) / sum(each.count for each in alike)
