"""An experiment that is posted again runs what is missing."""

from __future__ import annotations

from paceline.cluster.experiments.facts import TrialState
from paceline.cluster.experiments.grid import expand
from paceline.cluster.experiments.merging import FormerTrial, Merge, merge
from tests.cluster.experiments.specs import experiment

STATES: tuple[TrialState, ...] = ("completed", "running", "failed", "cancelled", "pruned")


def merged(*, keeps_pruned: bool = False) -> Merge:
    """Trials of learning rates 1 to 5 in each of the states, then a grid of 5 down to 2, and 6."""
    before = expand(experiment(grid={"optimizer.lr": [1, 2, 3, 4, 5]})).cells
    former = [FormerTrial(cell.index, cell.key, state) for cell, state in zip(before, STATES, strict=True)]
    return merge(former, expand(experiment(grid={"optimizer.lr": [5, 4, 3, 2, 6]})).cells, next_index=5, keeps_pruned=keeps_pruned)


def test_what_ran_or_runs_stays_and_what_failed_runs_anew_under_its_number() -> None:
    change = merged()
    assert sorted(change.kept) == [1]
    assert {index: cell.values["optimizer.lr"] for index, cell in change.anew.items()} == {2: 3, 3: 4, 4: 5}


def test_what_is_new_gets_the_next_number_and_what_is_gone_is_retired() -> None:
    change = merged()
    assert {index: cell.values["optimizer.lr"] for index, cell in change.added.items()} == {5: 6}
    assert (change.retired, change.is_changed) == ([0], True)


def test_a_pruned_trial_of_a_halving_has_had_its_chance() -> None:
    assert sorted(merged(keeps_pruned=True).kept) == [1, 4]


def test_the_same_grid_changes_nothing() -> None:
    cells = expand(experiment(grid={"optimizer.lr": [1, -1]})).cells
    former = [FormerTrial(cell.index, cell.key, "refused" if cell.refusal else "completed") for cell in cells]
    assert not merge(former, cells, next_index=2, keeps_pruned=False).is_changed
