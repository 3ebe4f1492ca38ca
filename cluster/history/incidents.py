"""An incident's phases: the parts of an outage, and what each was spent on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

PhaseName = Literal["detect", "decide", "fence", "place", "rebuild", "transfer", "first_step"]


@dataclass(frozen=True)
class PhaseTime:
    name: PhaseName
    seconds: float
    under_way: bool = False


def phases(began: datetime, ends: Sequence[tuple[PhaseName, datetime | None]], over: datetime, *, is_open: bool) -> list[PhaseTime]:
    """Divide an outage into phases: from each known moment to the next one, in the given order; a phase is named by the moment that ends
    it.

    No phase is negative, and the sum is always `over - began`, though the moments come from the clocks of several machines. The time
    after the last known moment belongs to the phase after it."""
    known = [(name, end) for name, end in ends if end is not None]
    last = known[-1][0] if known else None
    found: list[PhaseTime] = []
    at = began
    for name, end in known:
        reached = min(max(end, at), over)
        found.append(PhaseTime(name, (reached - at).total_seconds()))
        at = reached
    names = [name for name, _ in ends]
    following = names[names.index(last) + 1 :] if last is not None else names
    if following and (at < over or is_open):
        found.append(PhaseTime(following[0], (over - at).total_seconds(), under_way=is_open))
    return found
