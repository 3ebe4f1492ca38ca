from __future__ import annotations

from paceline.cluster.experiments.time_left import TrialTime, seconds_left, slot_seconds_left, still_to_draw


def waiting(ranks: int, count: int = 1, seconds: float = 0.0) -> TrialTime:
    return TrialTime(ranks, count, seconds, has_ended=False)


def ended(ranks: int, count: int, seconds: float) -> TrialTime:
    return TrialTime(ranks, count, seconds, has_ended=True)


def test_nothing_is_known_before_a_trial_has_ended() -> None:
    assert seconds_left([waiting(1, 3)], 1) is None


def test_trials_take_what_those_of_their_size_took() -> None:
    assert seconds_left([ended(1, 2, 20.0), ended(2, 1, 4.0), waiting(1, 3), waiting(2)], 1) == 34.0


def test_a_size_that_has_not_ended_takes_the_mean_of_all() -> None:
    assert seconds_left([ended(1, 1, 10.0), ended(2, 1, 20.0), waiting(4)], 1) == 15.0


def test_trials_side_by_side_share_the_time_and_what_runs_has_done_a_part() -> None:
    assert seconds_left([ended(1, 1, 10.0), waiting(1, 4, 10.0)], 2) == 15.0


def test_slots_are_held_by_every_rank() -> None:
    assert slot_seconds_left([ended(1, 1, 10.0), ended(4, 1, 5.0), waiting(1, 2), waiting(4)]) == 40.0
    assert slot_seconds_left([waiting(1)]) is None


def test_trials_of_a_search_that_are_not_drawn_yet_are_as_large_as_the_others() -> None:
    known = [ended(1, 2, 20.0), ended(4, 1, 40.0)]
    assert still_to_draw(known, 3) == [waiting(2, 3)]
    assert (still_to_draw(known, 0), still_to_draw(known, -1), still_to_draw([], 3)) == ([], [], [waiting(1, 3)])
