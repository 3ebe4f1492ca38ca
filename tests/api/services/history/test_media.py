"""Which of the logged objects count, whatever crashed or was done again. Pure."""

from __future__ import annotations

from typing import Any

from paceline.api.services.history.media import as_they_stand, by_step, evenly
from paceline.cluster.history.lineage import Line
from paceline.db.repositories.media import LoggedObject
from tests.factories import START


def logged(id: str, step: int, generation: int = 1, rank: int = 0, **changes: Any) -> LoggedObject:
    known: dict[str, Any] = {"key": "k", "kind": "images", "items": 1, "bytes": 10, "created_at": START}
    return LoggedObject(id=id, step=step, generation=generation, rank=rank, **(known | changes))


def ids(*objects: LoggedObject, lines: tuple[Line, ...] = ()) -> list[str]:
    return [each.id for each in as_they_stand(objects, lines)]


def test_of_what_a_rank_logged_twice_at_a_step_the_later_counts() -> None:
    assert ids(logged("a", 1), logged("b", 1), logged("c", 1, rank=1)) == ["b", "c"]


def test_a_step_done_again_is_that_of_the_newest_generation_alone() -> None:
    """Rank 1 is gone in generation 2: what it logged at the step was of work that was done again."""
    assert ids(logged("a", 5), logged("b", 5, rank=1), logged("c", 5, generation=2)) == ["c"]
    assert ids(logged("c", 5, generation=2), logged("late", 5)) == ["c"], "an earlier generation's object may arrive later"


def test_what_lies_beyond_the_step_from_which_a_later_generation_went_on_is_lost_work() -> None:
    objects = [logged("kept", 100), logged("lost", 110), logged("again", 105, generation=2)]
    assert ids(*objects, lines=(Line(1, 1, 100), Line(2, 101, 107))) == ["kept", "again"]


def test_keys_and_kinds_are_apart_from_each_other() -> None:
    assert ids(logged("b", 5, key="b"), logged("a", 5, generation=2, key="a"), logged("t", 5, kind="table", key="b")) == ["a", "b", "t"]


def test_steps_hold_their_ranks() -> None:
    steps = by_step([logged("a", 1), logged("b", 1, rank=1), logged("c", 2)])
    assert [(each.step, [one.id for one in each.objects]) for each in steps] == [(1, ["a", "b"]), (2, ["c"])]


def test_a_choice_of_steps_keeps_the_first_and_the_last() -> None:
    objects = [logged(str(step), step) for step in range(1000)]
    chosen = [each.step for each in evenly(objects, 5)]
    assert chosen == [0, 250, 500, 749, 999]
    assert [each.step for each in evenly(objects, 1)] == [999]
    assert evenly(objects[:3], 5) == objects[:3]
