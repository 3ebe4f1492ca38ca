"""Which slots a running gang gets: its blocks stay on one node each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.extension import Extension, explain, extend
from paceline.cluster.policy.mounts import NodeMounts
from paceline.cluster.policy.placement import NodeView, Room
from tests.cluster.policy.test_placement import NODES, node


def wanted(slots: int, per_node: int | None = 2, block: int = 1, spares: int = 0, **held: int) -> Extension:
    return Extension("job", slots, per_node, "cpu", held, block=block, spares=spares)


def given_to(gang: Extension, nodes: list[NodeView]) -> list[str]:
    return [share.node_id for share in extend(gang, nodes, Room(nodes))]


def test_nodes_of_the_gang_are_refilled_before_others_are_opened() -> None:
    nodes = [node("a", 2, free=1), node("b", 2, free=1), node("c", 4)]
    assert given_to(wanted(3, a=1, b=1), nodes) == ["a", "b", "c"]


def test_no_node_gets_more_than_the_job_takes_of_one() -> None:
    nodes = [node("a", 8), node("b", 8)]
    assert given_to(wanted(9, a=1), nodes) == ["a", "b", "b"]


def test_ranks_of_a_gang_are_on_one_kind_of_device() -> None:
    nodes = [node("a", 2, device="cuda"), node("b", 2, schedulable=False)]
    assert given_to(wanted(1), nodes) == []


def blocks(slots: int, **held: int) -> Extension:
    """A gang in blocks of four."""
    return wanted(slots, None, 4, **held)


def test_a_lost_block_comes_back_on_one_node_although_fuller_ones_have_room_for_a_part() -> None:
    assert given_to(blocks(4, a=4), [node("b", 2), node("c", 5), node("d", 8)]) == ["c"] * 4


def test_a_block_that_fits_no_node_comes_as_far_as_one_node_has_room_and_waits_there_for_the_rest() -> None:
    nodes = [node("b", 2), node("c", 3)]
    assert given_to(blocks(4, a=4), nodes) == ["c"] * 3
    assert given_to(blocks(1, a=4, c=3), [node("b", 2), node("c", 4, free=0)]) == []
    assert given_to(blocks(1, a=4, c=3), [node("b", 2), node("c", 4, free=1)]) == ["c"]


def test_broken_blocks_are_made_whole_where_they_are() -> None:
    nodes = [node("a", 4, free=2), node("b", 4, free=2), node("c", 4)]
    assert given_to(blocks(4, a=2, b=2), nodes) == ["a", "a", "b", "b"]


def test_a_block_beside_one_that_cannot_be_made_whole_still_comes() -> None:
    assert given_to(blocks(5, a=3), [node("a", 4, free=0), node("b", 4), node("c", 1)]) == ["b"] * 4


def test_a_gang_whose_spares_have_come_in_is_in_no_blocks_and_takes_what_there_is() -> None:
    assert given_to(wanted(1, None, 2, a=1, b=1, c=1), [node("d", 1)]) == ["d"]


@given(NODES, st.integers(1, 12), st.integers(1, 4), st.dictionaries(st.sampled_from(["n0", "n1", "n2", "gone"]), st.integers(1, 2)))
def test_no_block_is_ever_on_two_nodes(nodes: list[NodeView], slots: int, block: int, held: dict[str, int]) -> None:
    """Whole blocks before, any number of slots wanted: no more blocks are begun than so many slots make."""
    before = Counter({name: count * block for name, count in held.items()})
    given_now = given_to(wanted(slots, None, block, **before), nodes)
    after = before + Counter(given_now)
    assert len(given_now) <= slots
    assert sum(-(-count // block) for count in after.values()) <= -(-(before.total() + slots) // block)


def test_a_gang_grows_onto_nodes_that_may_share_its_folder_alone() -> None:
    """A rank that joined elsewhere did not see the gang's checkpoints, and failed."""
    nodes = [node("a", 1, folder="one", free=0), node("b", 1, folder="two"), node("c", 1, folder="one"), node("d", 1)]
    wanted = Extension("job", 3, None, "cpu", {"a": 1}, one_folder=True)
    assert sorted(share.node_id for share in extend(wanted, nodes, Room(nodes))) == ["c", "d"]
    assert len(extend(replace(wanted, one_folder=False), nodes, Room(nodes))) == 3
    full = [nodes[0], nodes[1]]
    assert explain(wanted, full, 0).text == "3 more slots wanted; the free ones are on nodes with another folder for checkpoints"


MOUNTS: dict[str, tuple[str, ...]] = {"a": ("/data",), "b": ("/data",), "c": (), "d": ()}


def test_a_gang_grows_onto_nodes_that_mount_the_folder_which_it_names() -> None:
    nodes = [node(name, 1, free=int(name != "a"), mounts=NodeMounts(name, mounts)) for name, mounts in MOUNTS.items()]
    wanted = Extension("job", 3, None, "cpu", {"a": 1}, one_folder=True, directory="/data/ckpt")
    assert [share.node_id for share in extend(wanted, nodes, Room(nodes))] == ["b"]
    assert (
        explain(wanted, [nodes[0], nodes[2]], 0).text
        == "3 more slots wanted; the free ones are on nodes with another folder for checkpoints"
    )


def test_a_gang_that_runs_where_its_folder_lies_apart_by_the_mounts_grows_onto_any_node() -> None:
    """It is one folder, since the gang runs: behind a link, for example."""
    nodes = [node(name, 1, free=int(name not in "ac"), mounts=NodeMounts(name, mounts)) for name, mounts in MOUNTS.items()]
    wanted = Extension("job", 3, None, "cpu", {"a": 1, "c": 1}, one_folder=True, directory="/data/ckpt")
    assert sorted(share.node_id for share in extend(wanted, nodes, Room(nodes))) == ["b", "d"]
