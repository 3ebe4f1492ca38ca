"""The generation whose work counts, for each step: a later generation's start cuts off what an earlier one did beyond it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """The steps `first` to `last` that count of one generation."""

    generation: int
    first: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.first + 1

    def overlap(self, first: int, last: int) -> int:
        """How many of the steps `first` to `last` are in the line."""
        return max(0, min(self.last, last) - max(self.first, first) + 1)


def lineage(starts: Mapping[int, int], newest: Mapping[int, int]) -> list[Line]:
    """The lines of steps that count, the oldest first. `starts`: the step from which a generation went on; `newest`: the last step that it
    finished.

    A generation that finished no step of its own cuts nothing off: the step that it would have gone on from was only a guess."""
    lines: list[Line] = []
    cut: int | None = None
    for generation in sorted(newest, reverse=True):
        start = starts.get(generation, 0)
        last = newest[generation] if cut is None else min(newest[generation], cut)
        if newest[generation] <= start:
            continue
        if last > start:
            lines.append(Line(generation, start + 1, last))
        cut = start if cut is None else min(cut, start)
    return lines[::-1]


def is_undone(lines: Sequence[Line], generation: int, step: int) -> bool:
    """Whether a later generation did this step of a generation again, or is on its way there."""
    return any(line.generation > generation and line.first <= step for line in lines)
