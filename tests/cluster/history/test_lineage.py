"""Which generation's steps count."""

from __future__ import annotations

from paceline.cluster.history.lineage import Line, is_undone, lineage


def test_a_restart_cuts_off_what_it_did_again() -> None:
    assert lineage({1: 0, 2: 5}, {1: 9, 2: 20}) == [Line(1, 1, 5), Line(2, 6, 20)]


def test_a_generation_that_goes_on_cuts_nothing_off() -> None:
    assert lineage({1: 0, 2: 9, 3: 14}, {1: 9, 2: 14, 3: 20}) == [Line(1, 1, 9), Line(2, 10, 14), Line(3, 15, 20)]


def test_a_restart_can_throw_a_whole_generation_away() -> None:
    """Generation 2 went on from 9 to 14 and saved nothing; 3 began at 5 again."""
    assert lineage({1: 0, 2: 9, 3: 5}, {1: 9, 2: 14, 3: 20}) == [Line(1, 1, 5), Line(3, 6, 20)]


def test_a_generation_that_finished_no_step_says_nothing_of_where_it_began() -> None:
    """The coordinator had placed it at the newest step it knew of, which was too low; it died before it could correct that."""
    assert lineage({1: 0, 2: 7, 3: 9}, {1: 9, 2: 7, 3: 12}) == [Line(1, 1, 9), Line(3, 10, 12)]
    assert lineage({1: 0, 2: 7, 3: 9}, {1: 9, 3: 12}) == [Line(1, 1, 9), Line(3, 10, 12)]


def test_a_restored_job_begins_where_its_checkpoint_ends() -> None:
    assert lineage({1: 50}, {1: 80}) == [Line(1, 51, 80)]
    assert Line(1, 51, 80).overlap(41, 60) == 10
    assert lineage({}, {}) == []


def test_a_step_is_undone_as_soon_as_a_later_generation_is_on_its_way_there() -> None:
    lines = [Line(1, 1, 5), Line(3, 6, 8)]
    assert [is_undone(lines, 1, step) for step in (5, 6, 20)] == [False, True, True]
    assert [is_undone(lines, 3, step) for step in (5, 6, 20)] == [False, False, False]
    assert is_undone(lines, 2, 9)
    assert not is_undone([], 1, 9)
