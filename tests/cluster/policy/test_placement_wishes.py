"""The nodes that a job prefers, since its checkpoint or its own folder is there, and those that it leaves out, since they could not start it."""

from __future__ import annotations

from paceline.cluster.policy.placement import Placement, Requirements, place
from tests.cluster.policy.test_placement import node, placed, reason, request, shares

A = frozenset({"a"})


def test_a_job_goes_back_to_the_node_of_its_checkpoint_though_another_is_fuller() -> None:
    nodes = [node("a", 2), node("b", 2, free=1)]
    assert placed(place([request("job")], nodes)) == {"job": ["b"]}
    assert placed(place([request("job", prefers=A)], nodes)) == {"job": ["a"]}


def test_a_job_that_does_not_fit_on_the_node_of_its_checkpoint_goes_elsewhere() -> None:
    assert placed(place([request("job", prefers=A)], [node("a", free=0), node("b")])) == {"job": ["b"]}
    assert placed(place([request("job", prefers=A)], [node("a", schedulable=False), node("b")])) == {"job": ["b"]}
    assert placed(place([request("job", prefers=A)], [node("a", taints=frozenset({"broken"})), node("b")])) == {"job": ["b"]}
    assert placed(place([request("job", prefers=frozenset({"gone"}))], [node("b")])) == {"job": ["b"]}


def test_a_job_that_may_be_smaller_stays_whole_where_its_checkpoint_is() -> None:
    nodes = [node("a", 2), node("b", 4)]
    assert shares(place([request("job", 4, min_blocks=1, prefers=A)], nodes)[0]) == [("a", 2)]
    assert shares(place([request("job", 4, prefers=A)], nodes)[0]) == [("b", 4)]


def test_slots_of_preferred_nodes_are_given_once() -> None:
    both = place([request("one", age=9, prefers=A), request("two", prefers=A)], [node("a", 1), node("b", 1)])
    assert placed(both) == {"one": ["a"], "two": ["b"]}
    several = place([request("one", 2, age=9, prefers=A), request("two", 2, prefers=A)], [node("a", 4), node("b", 2)])
    assert [shares(each) for each in several] == [[("a", 2)], [("a", 2)]]
    assert sorted(slot for each in several if isinstance(each, Placement) for slot in each.shares[0].slots) == [0, 1, 2, 3]


def test_slots_that_a_blocked_job_waits_with_are_not_given_for_a_preference() -> None:
    queue = [request("wide", 1, 4, age=9), request("small", prefers=A)]
    assert placed(place(queue, [node("a", 4, free=3), node("b", 1)])) == {"small": ["b"]}


def test_a_node_that_could_not_start_a_job_is_left_out() -> None:
    nodes = [node("a", 1), node("b", 1)]
    assert placed(place([request("job")], nodes)) == {"job": ["a"]}
    assert placed(place([request("job", leaves_out=A)], nodes)) == {"job": ["b"]}
    assert placed(place([request("job", leaves_out=A, prefers=A)], nodes)) == {"job": ["b"]}
    widened = request("job", most_blocks=2, leaves_out=A)
    assert shares(place([widened], nodes)[0]) == [("b", 1)]


def test_a_node_that_could_not_start_a_job_is_left_out_while_the_others_are_busy() -> None:
    """Else the whole queue is tried on the one node that starts nothing, and fails there."""
    verdicts = place([request("job", age=9, leaves_out=A), request("next")], [node("a", 1), node("b", 1, free=0)])
    assert placed(verdicts) == {"next": ["a"]}
    assert reason(verdicts) == (
        "slots_taken",
        "needs 1 node with 1 free slot; the largest available node is a (1 free slot); a could not start it a short time ago",
    )


def test_a_node_that_could_not_start_a_job_is_tried_again_where_the_others_could_never_hold_it() -> None:
    assert placed(place([request("job", leaves_out=A)], [node("a", 1)])) == {"job": ["a"]}
    assert shares(place([request("job", 3, leaves_out=A)], [node("a", 2), node("b", 2)])[0]) == [("a", 2), ("b", 1)]
    gpus = request("job", leaves_out=A, requirements=Requirements(device="cuda"))
    assert placed(place([gpus], [node("a", device="cuda"), node("b")])) == {"job": ["a"]}
    assert placed(place([request("job", leaves_out=A)], [node("a", 1), node("b", 1, schedulable=False)])) == {"job": ["a"]}


def test_a_job_that_leaves_nodes_out_has_slots_set_aside_on_the_others() -> None:
    queue = [request("wide", 1, 2, age=9, leaves_out=A), request("small")]
    assert placed(place(queue, [node("a", 2, free=1), node("b", 2, free=1)])) == {"small": ["a"]}
    assert placed(place(queue, [node("b", 2, free=1), node("c", 2)])) == {"wide": ["c"], "small": ["b"]}


def test_a_script_goes_back_to_its_own_folder_though_another_node_is_fuller() -> None:
    nodes = [node("a", 2), node("b", 2, free=1)]
    assert placed(place([request("job", last_held=(("a", 1),))], nodes)) == {"job": ["a"]}


def test_ranks_of_a_script_are_in_the_order_in_which_they_were_on_its_nodes() -> None:
    nodes = [node("a", 2), node("b", 2), node("c", 4)]
    assert shares(place([request("job", 4, last_held=(("b", 2), ("a", 2)))], nodes)[0]) == [("b", 2), ("a", 2)]
    spread = request("job", 2, spread=True, last_held=(("b", 1), ("a", 1)))
    assert shares(place([spread], nodes)[0]) == [("b", 1), ("a", 1)]


def test_the_first_rank_of_a_script_stays_where_its_folder_is_when_another_node_is_lost() -> None:
    nodes = [node("a", 2), node("c", 4), node("d", 2, free=1)]
    assert shares(place([request("job", 4, last_held=(("a", 2), ("lost", 2)))], nodes)[0]) == [("a", 2), ("c", 2)]
    assert shares(place([request("job", 4, last_held=(("lost", 2), ("a", 2)))], nodes)[0]) == [("a", 2), ("c", 2)]
    assert shares(place([request("job", last_held=(("lost", 1),))], nodes)[0]) == [("d", 1)]


def test_an_elastic_script_that_starts_again_to_grow_keeps_its_nodes_and_is_not_held_back_by_them() -> None:
    nodes = [node("a", 1), node("b", 1), node("c", 4)]
    grown = request("job", 4, min_blocks=1, last_held=(("b", 1),))
    assert shares(place([grown], nodes)[0]) == [("b", 1), ("c", 3)]
    widened = request("job", 1, most_blocks=2, last_held=(("c", 1), ("b", 1)))
    assert shares(place([widened], [node("a", 1), node("b", 1), node("c", 1)])[0]) == [("c", 1), ("b", 1)]


def test_a_script_leaves_the_node_of_its_folder_where_that_could_not_start_it() -> None:
    assert placed(place([request("job", leaves_out=A, last_held=(("a", 1),))], [node("a"), node("b")])) == {"job": ["b"]}
