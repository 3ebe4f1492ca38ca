"""Gangs that save in the nodes' default folder are placed where nodes may share it, or wait: they were started elsewhere, and failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.folders import FolderSets, FoldersOfRoom
from paceline.cluster.policy.mounts import NodeMounts
from paceline.cluster.policy.placement import NodeView, Placement, QueuedGang, Request, place
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


def mounting(name: str, *mounts: str, slots: int = 1, **known: Any) -> NodeView:
    """A node on a machine of its own."""
    return node(name, slots, mounts=NodeMounts(name, mounts), **known)


def test_a_gang_is_placed_on_nodes_that_mount_the_folder_which_it_names_and_waits_for_those() -> None:
    """It went to the fullest nodes, and failed there once its ranks ran."""
    named = replace(TWO, directory="/data/ckpt")
    nodes = [mounting("a"), mounting("b", "/data"), mounting("c", "/data", "/mnt")]
    assert shares(place([named], nodes)[0]) == [("b", 1), ("c", 1)]
    assert shares(place([replace(TWO, directory="/elsewhere", blocks=2)], [*nodes, mounting("d", slots=2)])[0]) == [("d", 2)]
    waits = place([named], [*nodes[:2], mounting("c", "/data", free=0)])
    assert reason(waits) == (
        "slots_taken",
        "needs 2 free slots where nodes share checkpoint.directory=/data/ckpt; the free ones do not",
    )
    lost = place([named], nodes[:2])
    assert reason(lost)[0] == "no_matching_node"
    assert isinstance(lost[0], QueuedGang)
    assert "checkpoint.shared" in str(lost[0].reason.next_step)


def test_nodes_that_do_not_tell_their_mounts_and_those_of_one_machine_go_together() -> None:
    named = replace(TWO, directory="/data")
    assert shares(place([named], [mounting("a"), node("old", 1)])[0]) == [("a", 1), ("old", 1)]
    one_machine = [replace(mounting("a"), id=name, name=name) for name in ("x", "y")]
    assert shares(place([named], one_machine)[0]) == [("x", 1), ("y", 1)]


def test_the_sets_of_a_folder_are_made_once_for_all_below_the_same_mounts() -> None:
    folders = FoldersOfRoom(Room([mounting("a", "/data"), mounting("b", "/data"), mounting("c")]))
    assert folders.sets_for("/data/one") is folders.sets_for("/data/two")
    assert len(folders.sets_for("/data/one").sets) == 2
    assert len(folders.sets_for("/mnt").sets) == 3
    assert folders.sets_for(None).sets == []


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
