"""A schedule is its seed: mixed, spread out, and the same each time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scripts.chaos.schedule import KINDS, NETWORKED, deck, last_step, possible_kinds, schedule


@given(st.integers(0, 10**6), st.integers(1, 100), st.integers(2, 1000), st.integers(1, 8))
def test_one_fault_in_each_window_and_room_after_the_last(seed: int, faults: int, every: int, ranks: int) -> None:
    plan = schedule(seed, faults, every, ranks)
    assert plan == schedule(seed, faults, every, ranks)
    assert [fault.step // every for fault in plan] == list(range(1, faults + 1))
    assert all(0 <= fault.rank < ranks for fault in plan)
    assert last_step(plan, every) >= plan[-1].step + every


def test_another_seed_is_another_schedule() -> None:
    assert schedule(1, 60, 100, 3) != schedule(2, 60, 100, 3)


@given(st.integers(1, 200))
def test_every_kind_comes_and_the_frequent_ones_more_often(faults: int) -> None:
    drawn = Counter(deck(faults, KINDS))
    assert drawn.total() == faults
    assert len(drawn) == min(faults, len(KINDS))
    assert drawn["rank_killed"] >= drawn["namespace_killed"]


def test_sixty_faults_hold_each_kind_in_its_proportion() -> None:
    share = 60 // sum(KINDS.values())
    assert Counter(deck(60, KINDS)) == {kind: count * share for kind, count in KINDS.items()}


def test_without_namespaces_no_link_is_cut() -> None:
    assert not NETWORKED & set(deck(60, possible_kinds(networked=False)))
    assert possible_kinds(networked=True) == KINDS
