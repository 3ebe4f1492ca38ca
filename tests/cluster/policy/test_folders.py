"""Gangs that save in the nodes' default folder are placed where nodes may share it, or wait: they were started elsewhere, and failed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.folders import FolderSets
from paceline.cluster.policy.placement import NodeView, Placement, Request, place
from paceline.cluster.policy.room import Room
from tests.cluster.policy.test_placement import node, reason, request, shares

TWO = request("job", 2, one_folder=True)


def test_two_nodes_that_share_a_folder_are_taken_and_not_the_fuller_one_that_does_not() -> None:
    nodes = [node("a", 2, folder="one", free=1), node("b", 2, folder="two", free=1), node("c", 2, folder="one", free=1)]
    assert shares(place([TWO], nodes)[0]) == [("a", 1), ("c", 1)]
    assert shares(place([replace(TWO, one_folder=False)], nodes)[0]) == [("a", 1), ("b", 1)]


def test_a_job_waits_while_one_of_those_is_busy_and_its_slots_are_kept() -> None:
    nodes = [node("a", 1, folder="one"), node("b", 1, folder="one", free=0), node("c", 1, folder="two")]
    verdicts = place([TWO, request("later", 1, age=-1)], nodes)
    assert reason(verdicts) == (
        "slots_taken",
        "needs 2 free slots where nodes share their default folder for checkpoints; the free ones do not",
    )
    assert shares(verdicts[1]) == [("c", 1)]


def test_one_node_with_room_for_all_is_enough() -> None:
    assert shares(place([TWO], [node("a", 1, folder="one"), node("b", 2, folder="two")])[0]) == [("b", 2)]


def test_a_node_whose_folder_others_may_see_goes_with_any() -> None:
    assert shares(place([TWO], [node("a", 1, folder="one"), node("b", 1, folder="two", free=0), node("c", 1)])[0]) == [("a", 1), ("c", 1)]


def test_a_gang_that_no_nodes_could_hold_together_says_how_it_could_run_and_blocks_nobody() -> None:
    verdicts = place([TWO, request("later", 2, age=-1)], [node("a", 1, folder="one"), node("b", 1, folder="two")])
    assert reason(verdicts)[0] == "no_matching_node"
    pending = verdicts[0]
    assert not isinstance(pending, Placement)
    assert "checkpoint.directory" in str(pending.reason.next_step)
    assert shares(verdicts[1]) == [("a", 1), ("b", 1)]


def test_a_gang_that_may_be_smaller_starts_on_what_shares_a_folder() -> None:
    nodes = [node("a", 1, folder="one"), node("b", 1, folder="two"), node("c", 1, folder="two")]
    assert shares(place([replace(TWO, blocks=3, min_blocks=1)], nodes)[0]) == [("b", 1), ("c", 1)]


def test_where_all_may_share_one_folder_nothing_is_told_apart() -> None:
    assert FolderSets(Room([node("a", folder="one"), node("b", folder="one"), node("c")])).sets == []


NODES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from([None, "one", "two", "three"])), min_size=1, max_size=6)
JOBS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2), st.booleans(), st.booleans()), min_size=1, max_size=4)


@given(NODES, JOBS)
def test_no_gang_is_ever_placed_across_folders_and_no_slot_given_twice(
    machines: list[tuple[int, int, str | None]], jobs: list[tuple[int, int, bool, bool]]
) -> None:
    nodes: list[NodeView] = [
        node(f"n{number}", slots, free=min(free, slots), folder=folder) for number, (slots, free, folder) in enumerate(machines)
    ]
    queue: list[Request] = [
        request(f"j{number}", blocks, size, age=-number, spread=spread, one_folder=one)
        for number, (blocks, size, spread, one) in enumerate(jobs)
    ]
    folders, free = {each.id: each.folder for each in nodes}, {(each.id, slot) for each in nodes for slot in each.free}
    for asked, verdict in zip(queue, place(queue, nodes), strict=True):
        for share in verdict.shares if isinstance(verdict, Placement) else ():
            taken = {(share.node_id, slot) for slot in share.slots}
            assert taken <= free
            free -= taken
        if asked.one_folder and isinstance(verdict, Placement):
            assert verdict.slots == asked.blocks * asked.slots_per_block
            assert len({folders[share.node_id] for share in verdict.shares} - {None}) <= 1
