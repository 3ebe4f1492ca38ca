"""What records around a fault say: each kind of loss is seen, and a clean recovery shows none."""

from __future__ import annotations

import pytest

from scripts.faults.history import Commit, join_outage, median_step, never_done, resumed_at, split_brains, steps_redone

MEMBERS = ("a", "b", "c")


def commits(generation: int, steps: range, members: tuple[str, ...] = MEMBERS, start: float = 0.0) -> list[Commit]:
    """A step a second; each rank a little later than the one before it."""
    return [
        Commit(member, generation, rank, step, start + step - steps.start + 1 + rank / 100, 1.0)
        for step in steps
        for rank, member in enumerate(members)
    ]


CLEAN = [*commits(1, range(1, 6)), *commits(2, range(6, 10), ("a", "c"), start=5.5)]


def test_clean_recovery_loses_nothing() -> None:
    assert (steps_redone(CLEAN), never_done(CLEAN), split_brains(CLEAN)) == (0, set(), 0)
    assert resumed_at(CLEAN, 1) == pytest.approx(6.51)  # when the slower of the two had finished step 6
    assert resumed_at(CLEAN, 2) is None


def test_a_dead_members_last_step_is_nobodys_loss() -> None:
    only_the_dead = Commit("b", 1, 1, 6, 5.2, 1.0)
    assert steps_redone([*CLEAN, only_the_dead]) == 0


def test_a_step_that_a_survivor_does_again_is_lost_work() -> None:
    assert steps_redone([*CLEAN, Commit("a", 1, 0, 6, 5.2, 1.0)]) == 1


def test_a_step_that_nobody_did_is_a_hole() -> None:
    assert never_done([commit for commit in CLEAN if commit.step != 4]) == {4}


def test_two_memberships_at_work_at_once_are_a_split_brain() -> None:
    assert split_brains([*CLEAN, Commit("b", 1, 1, 6, 7.5, 1.0)]) == 1


def test_joining_costs_those_at_work_what_exceeds_a_step() -> None:
    told = [*commits(2, range(1, 5), ("a", "b")), *commits(3, range(5, 9), start=4.25)]
    assert median_step(told) == 1.0
    assert join_outage(told, 2, 3) == pytest.approx(0.25, abs=0.02)


def test_joining_in_two_memberships_costs_the_longer_stop() -> None:
    told = [*commits(2, range(1, 5), ("a", "b")), *commits(3, range(5, 9), ("a", "b"), start=6.0), *commits(4, range(9, 12), start=10.5)]
    assert join_outage(told, 2, 4) == pytest.approx(2.0, abs=0.02)
