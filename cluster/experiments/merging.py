"""An experiment that is posted again: what of its trials stays, what runs anew, what is added, and what goes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster.experiments.facts import Cell, TrialState

#: Trials that have what they were to bring, or are on their way to it.
_KEPT: frozenset[TrialState] = frozenset({"completed", "running", "paused", "waiting"})


@dataclass(frozen=True)
class FormerTrial:
    index: int
    key: str
    state: TrialState


@dataclass(frozen=True)
class Merge:
    """By index of a trial: the cell that it is now."""

    kept: Mapping[int, Cell]
    anew: Mapping[int, Cell]  # failed, cancelled, or refused before: runs again, as if it never had
    added: Mapping[int, Cell]
    retired: Sequence[int]  # the new grid has no such configuration

    @property
    def is_changed(self) -> bool:
        """Whether something is to run that was not."""
        return any(cell.refusal is None for cell in (*self.anew.values(), *self.added.values()))


def merge(former: Sequence[FormerTrial], cells: Sequence[Cell], next_index: int, *, keeps_pruned: bool) -> Merge:
    """Match the cells of the new grid, or of new draws, with the trials by their keys. `next_index`: of the first trial that is added.
    `keeps_pruned`: a pruned trial has had its chance, and does not run again."""
    by_key = {each.key: each for each in former}
    kept, anew, added = dict[int, Cell](), dict[int, Cell](), dict[int, Cell]()
    for cell in cells:
        before = by_key.pop(cell.key, None)
        if before is None:
            added[next_index], next_index = cell, next_index + 1
        elif before.state in _KEPT or (keeps_pruned and before.state == "pruned"):
            kept[before.index] = cell
        else:
            anew[before.index] = cell
    return Merge(kept, anew, added, [each.index for each in by_key.values()])
