"""Placement: examples for each reason, and properties over any queue and any cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.policy.placement import NodeView, Placement, QueuedGang, Request, Requirements, Room, place
from paceline.training.schema.parallelism import Parallelism
from tests.cluster import plain_placement
from tests.cluster.plain_placement import blocks_in

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def node(name: str, slots: int = 4, *, free: int | None = None, device: str = "cpu", schedulable: bool = True, **known: Any) -> NodeView:
    return NodeView(name, name, device, slots, tuple(range(slots))[: slots if free is None else free], schedulable, **known)


def request(job: str, blocks: int = 1, slots: int = 1, *, priority: int = 50, age: int = 0, **known: Any) -> Request:
    return Request(job, blocks, slots, priority, NOW - timedelta(seconds=age), **known)


def reason(verdicts: list[Placement | QueuedGang], job: str = "job") -> tuple[str, str]:
    pending = next(each for each in verdicts if each.job_id == job)
    assert isinstance(pending, QueuedGang)
    return pending.reason.code, pending.reason.text


def shares(verdict: Placement | QueuedGang) -> list[tuple[str, int]]:
    assert isinstance(verdict, Placement), verdict
    return [(share.node_id, len(share.slots)) for share in verdict.shares]


def placed(verdicts: list[Placement | QueuedGang]) -> dict[str, list[str]]:
    return {each.job_id: [share.node_id for share in each.shares] for each in verdicts if isinstance(each, Placement)}


def test_a_gang_that_is_spread_takes_its_blocks_on_distinct_nodes() -> None:
    (verdict,) = place([request("job", 2, 2, spread=True)], [node("a"), node("b")])
    assert isinstance(verdict, Placement)
    assert [(share.node_id, share.slots) for share in verdict.shares] == [("a", (0, 1)), ("b", (0, 1))]


def test_blocks_of_a_gang_share_a_node() -> None:
    (verdict,) = place([request("job", 2, 2)], [node("a"), node("b")])
    assert isinstance(verdict, Placement)
    assert [(share.node_id, share.slots) for share in verdict.shares] == [("a", (0, 1, 2, 3))]


def test_slots_are_taken_on_the_fewest_nodes_and_the_fullest_that_holds_the_rest() -> None:
    nodes = [node("a", 2), node("b", 4), node("c", 4, free=1), node("d", 8, free=3)]
    assert shares(place([request("job", 6)], nodes)[0]) == [("b", 4), ("a", 2)]
    assert shares(place([request("job", 8)], nodes)[0]) == [("b", 4), ("d", 3), ("c", 1)]
    assert shares(place([request("job", 3)], nodes)[0]) == [("d", 3)]


def test_a_block_is_never_cut() -> None:
    nodes = [node("a", 3), node("b", 3), node("c", 5)]
    assert shares(place([request("job", 4, 2)], nodes)[0]) == [("c", 4), ("a", 2), ("b", 2)]
    assert reason(place([request("job", 5, 2)], nodes)) == (
        "cluster_too_small",
        "needs 5 blocks of 2 slots; the cluster has room for 4 such blocks: the largest node has 5 slots (c)",
    )


def test_ranks_that_talk_the_most_are_kept_on_one_node() -> None:
    pairs = request("job", 6, plan=Parallelism(tensor=2))
    assert shares(place([pairs], [node("a", 3), node("b", 5)])[0]) == [("b", 4), ("a", 2)]
    assert shares(place([pairs], [node("a", 3), node("b", 3)])[0]) == [("a", 3), ("b", 3)]  # rather than not at all


def test_labels_taints_and_the_device_choose_nodes() -> None:
    near, far = frozenset({"zone=near"}), frozenset({"zone=far"})
    nodes = [
        node("a", labels=far),
        node("b", labels=near, taints=frozenset({"dedicated=vision"})),
        node("c", labels=near),
        node("d", device="cuda"),
    ]
    wants = Requirements(labels=near)
    assert shares(place([request("job", 4, requirements=wants)], nodes)[0]) == [("c", 4)]
    tolerant = replace(wants, tolerations=frozenset({"dedicated"}))
    assert shares(place([request("job", 8, requirements=tolerant)], nodes)[0]) == [("b", 4), ("c", 4)]
    assert shares(place([request("job", 4, requirements=Requirements(device="cpu"))], nodes)[0]) == [("a", 4)]
    assert reason(place([request("job", 6, requirements=wants)], nodes)) == (
        "no_matching_node",
        "needs 6 slots; the cluster has 4 slots for it; it cannot use a, d (no label zone=near), b (taint dedicated=vision)",
    )
    (waits,) = place([request("job", requirements=Requirements(device="cuda"))], nodes[:3])
    assert isinstance(waits, QueuedGang)
    assert waits.reason.text == "needs 1 node with 1 slot; the cluster has 0 such nodes for it; it cannot use a, b, c (device cpu)"


def test_free_slots_that_a_job_cannot_use_are_named() -> None:
    nodes = [node("a", 2, free=0), node("b", 2, taints=frozenset({"broken"}))]
    assert reason(place([request("job")], nodes)) == (
        "slots_taken",
        "needs 1 node with 1 free slot; the largest available node is a (0 free slots); it cannot use b (taint broken)",
    )


def test_the_fullest_node_that_fits_is_taken() -> None:
    assert placed(place([request("job", 1, 2)], [node("a", free=4), node("b", free=2), node("c", free=1)])) == {"job": ["b"]}


def test_priority_goes_before_age_and_age_before_the_rest() -> None:
    queue = [request("young", age=1), request("old", age=9), request("urgent", priority=90)]
    verdicts = place(queue, [node("a", 1)])
    assert [each.job_id for each in verdicts] == ["urgent", "old", "young"]
    assert placed(verdicts) == {"urgent": ["a"]}


def test_a_gang_never_mixes_devices_and_prefers_gpus() -> None:
    mixed = [node("a", 2), node("b", 2, device="cuda")]
    assert reason(place([request("job", 3)], mixed))[0] == "cluster_too_small"
    assert placed(place([request("job")], mixed)) == {"job": ["b"]}


def test_the_reason_names_the_largest_free_node() -> None:
    verdicts = place([request("job", 2, 4, spread=True)], [node("a", free=1), node("b", free=2)])
    assert reason(verdicts) == ("slots_taken", "needs 2 nodes with 4 free slots each; the largest available node is b (2 free slots)")


def test_the_reason_without_any_node_says_how_to_add_one() -> None:
    (pending,) = place([request("job")], [])
    assert isinstance(pending, QueuedGang)
    assert pending.reason.code == "no_nodes"
    assert pending.reason.next_step == "add a node: paceline worker"


def test_a_cluster_that_is_too_small_says_so() -> None:
    code, text = reason(place([request("job", 2, 8, spread=True)], [node("a", 8), node("b", 4)]))
    assert (code, text) == (
        "cluster_too_small",
        "needs 2 nodes with 8 slots each; the cluster has 1 such node: the largest node has 8 slots (a)",
    )


def test_nodes_that_no_job_of_this_kind_can_use_are_not_called_unready() -> None:
    """More slots than there are, with a label that no node has: fewer slots would not help."""
    (waits,) = place([request("job", 9, requirements=Requirements(labels=frozenset({"zone=near"})))], [node("a"), node("b")])
    assert isinstance(waits, QueuedGang)
    assert waits.reason.text == "needs 9 slots; the cluster has 0 slots for it; it cannot use a, b (no label zone=near)"
    assert waits.reason.nearest_fit is None
    assert waits.reason.next_step is not None
    assert waits.reason.next_step.startswith("add nodes, or ask for other resources.labels")


def test_a_gang_that_fits_but_for_spread_is_told_so() -> None:
    (waits,) = place([request("job", 3, spread=True)], [node("a", 2), node("b", 1)])
    assert isinstance(waits, QueuedGang)
    assert waits.reason.next_step == "add nodes, or leave out resources.spread"
    (waits,) = place([request("job", 4, spread=True)], [node("a", 2), node("b", 1)])
    assert isinstance(waits, QueuedGang)
    assert waits.reason.next_step == "add nodes, or ask for fewer nodes or slots_per_node"


def test_a_cordoned_node_is_named_as_the_way_out() -> None:
    (pending,) = place([request("job", 2, spread=True)], [node("a"), node("b", schedulable=False)])
    assert isinstance(pending, QueuedGang)
    assert pending.reason.code == "nodes_unavailable"
    assert pending.reason.next_step == "bring back or uncordon b"


def test_only_unavailable_nodes_is_no_crash() -> None:
    assert reason(place([request("job")], [node("a", schedulable=False)]))[0] == "nodes_unavailable"


def test_a_wide_job_is_not_starved_by_small_ones() -> None:
    queue = [request("wide", 2, 2, age=9), request("small", age=1)]
    verdicts = place(queue, [node("a", 2), node("b", 2, free=1)])  # two blocks of two slots
    assert placed(verdicts) == {}
    assert reason(verdicts, "small")[0] == "reserved"


def test_a_small_job_fills_what_the_wide_one_cannot_use() -> None:
    queue = [request("wide", 1, 4, age=9), request("small", age=1)]
    verdicts = place(queue, [node("a", 4, free=3), node("b", 1)])
    assert placed(verdicts) == {"small": ["b"]}


def test_a_job_that_can_never_fit_blocks_no_other() -> None:
    queue = [request("impossible", 9, 9, age=9), request("small", age=1)]
    assert placed(place(queue, [node("a", 1)])) == {"small": ["a"]}


def test_a_job_that_may_be_smaller_starts_with_as_many_nodes_as_there_are() -> None:
    elastic = request("job", 4, min_blocks=2, spread=True)
    assert placed(place([elastic], [node("a"), node("b"), node("c")])) == {"job": ["a", "b", "c"]}
    assert placed(place([elastic], [node(name) for name in "abcde"])) == {"job": ["a", "b", "c", "d"]}
    assert reason(place([elastic], [node("a"), node("b", free=0)])) == (
        "slots_taken",
        "needs 2 nodes with 1 free slot each; the largest available node is a (4 free slots)",
    )


def test_a_job_that_may_be_smaller_reserves_what_it_starts_with() -> None:
    elastic = request("wide", 3, age=9, min_blocks=2, spread=True)
    nodes = [node("a", 1), node("b", 1, free=0), node("c", 2, free=0), node("d", 1)]
    assert placed(place([elastic, request("small")], nodes)) == {"wide": ["a", "d"]}
    assert placed(place([elastic, request("small")], [*nodes[:3], node("d", 1, free=0)])) == {}


def test_a_job_in_groups_of_ranks_starts_with_whole_groups() -> None:
    pairs = request("job", 6, min_blocks=2, spread=True, plan=Parallelism(strategy="fsdp", shard=2))
    assert placed(place([pairs], [node(name) for name in "abcde"])) == {"job": ["a", "b", "c", "d"]}
    assert placed(place([pairs], [node("a")])) == {}


TAINTS = ["broken", "dedicated=vision"]
LABEL_SETS = st.sampled_from([frozenset[str](), frozenset({"zone=near"}), frozenset({"zone=far"}), frozenset({"zone=near", "fast"})])
TAINT_SETS = st.sampled_from([frozenset[str](), *(frozenset({taint}) for taint in TAINTS)])
NODES = st.lists(
    st.builds(
        lambda slots, free, device, schedulable, labels, taints: (slots, min(slots, free), device, schedulable, labels, taints),
        st.integers(1, 4),
        st.integers(0, 4),
        st.sampled_from(["cpu", "cuda"]),
        st.booleans(),
        LABEL_SETS,
        TAINT_SETS,
    ),
    max_size=6,
).map(
    lambda rows: [
        node(f"n{i}", slots, free=free, device=device, schedulable=up, labels=labels, taints=taints)
        for i, (slots, free, device, up, labels, taints) in enumerate(rows)
    ]
)
REQUIREMENTS = st.builds(
    Requirements,
    st.sampled_from([None, None, "cpu", "cuda"]),
    st.sampled_from([frozenset[str](), frozenset({"zone=near"}), frozenset({"fast"})]),
    st.sampled_from([frozenset[str](), frozenset({"dedicated"}), frozenset(TAINTS)]),
)
QUEUES = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2), st.integers(0, 9), st.booleans(), REQUIREMENTS), max_size=8
).map(
    lambda rows: [
        request(f"j{i}", blocks, slots, priority=priority, age=age, spread=spread, requirements=requirements)
        for i, (blocks, slots, priority, age, spread, requirements) in enumerate(rows)
    ]
)


@settings(deadline=None)
@given(QUEUES, NODES)
def test_gangs_are_whole_and_slots_are_given_once(queue: list[Request], nodes: list[NodeView]) -> None:
    by_id = {each.id: each for each in nodes}
    wants = {each.job_id: each for each in queue}
    taken: set[tuple[str, int]] = set()
    for verdict in place(queue, nodes):
        if isinstance(verdict, QueuedGang):
            assert verdict.reason.text
            continue
        want = wants[verdict.job_id]
        assert verdict.slots == want.blocks * want.slots_per_block
        assert len({share.node_id for share in verdict.shares}) == len(verdict.shares)
        assert len({by_id[share.node_id].device for share in verdict.shares}) == 1
        for share in verdict.shares:
            assert by_id[share.node_id].schedulable
            assert by_id[share.node_id].obstacle(want.requirements) is None
            assert len(share.slots) % want.slots_per_block == 0
            assert not want.spread or len(share.slots) == want.slots_per_block
            assert set(share.slots) <= set(by_id[share.node_id].free)
            assert not taken & {(share.node_id, slot) for slot in share.slots}
            taken |= {(share.node_id, slot) for slot in share.slots}


@settings(deadline=None)
@given(QUEUES, NODES)
def test_no_choice_of_nodes_is_smaller(queue: list[Request], nodes: list[NodeView]) -> None:
    for each in queue:
        (verdict,) = place([each], nodes)
        if isinstance(verdict, Placement) and not each.spread:
            device = next(one.device for one in nodes if one.id == verdict.shares[0].node_id)
            usable = [one for one in nodes if one.schedulable and one.device == device and one.obstacle(each.requirements) is None]
            blocks = sorted((len(one.free) // each.slots_per_block for one in usable), reverse=True)
            assert sum(blocks[: len(verdict.shares) - 1]) < each.blocks


@settings(deadline=None)
@given(QUEUES, NODES)
def test_every_request_gets_one_verdict_whatever_the_order(queue: list[Request], nodes: list[NodeView]) -> None:
    verdicts = place(queue, nodes)
    assert sorted(each.job_id for each in verdicts) == sorted(each.job_id for each in queue)
    assert place(list(reversed(queue)), nodes) == verdicts


@settings(deadline=None)
@given(QUEUES, NODES)
def test_the_first_in_line_is_placed_whenever_it_fits(queue: list[Request], nodes: list[NodeView]) -> None:
    verdicts = place(queue, nodes)
    if not verdicts:
        return
    first = next(each for each in queue if each.job_id == verdicts[0].job_id)
    ready = [each for each in nodes if each.schedulable and each.obstacle(first.requirements) is None]
    blocks = {each.id: blocks_in(len(each.free), first) for each in ready}
    fits = any(sum(blocks[each.id] for each in ready if each.device == device) >= first.blocks for device in ("cpu", "cuda"))
    assert isinstance(verdicts[0], Placement) == fits


@settings(deadline=None)
@given(QUEUES, NODES)
def test_no_job_starves_while_small_jobs_keep_coming(queue: list[Request], nodes: list[NodeView]) -> None:
    nodes = [replace(each, free=tuple(range(each.slots)), schedulable=True) for each in nodes]
    possible = next((each for each in queue if isinstance(place([each], nodes)[0], Placement)), None)
    if possible is None:
        return
    assert _rounds_until_placed(possible, nodes) <= sum(each.slots for each in nodes)


def _rounds_until_placed(wide: Request, nodes: list[NodeView]) -> int:
    """In a cluster full of small jobs, of which the oldest ends in each round, while more come than there is room for."""
    slots = sum(each.slots for each in nodes)
    any_node = Requirements(tolerations=frozenset(TAINTS))
    old = [request(f"old{n}", requirements=any_node) for n in range(slots)]
    running = [each for each in place(old, nodes) if isinstance(each, Placement)]
    for rounds in range(1, 2 * slots + 1):
        running.pop(0)
        younger = [request(f"young{rounds}.{n}", priority=wide.priority, age=-rounds, requirements=any_node) for n in range(slots)]
        placements = [each for each in place([wide, *younger], [_without(each, running) for each in nodes]) if isinstance(each, Placement)]
        if any(each.job_id == wide.job_id for each in placements):
            return rounds
        running += placements
    raise AssertionError(f"{wide} starved")


def _without(each: NodeView, running: list[Placement]) -> NodeView:
    taken = {slot for gang in running for share in gang.shares if share.node_id == each.id for slot in share.slots}
    return replace(each, free=tuple(slot for slot in each.free if slot not in taken))


#: Of nodes that a job prefers or leaves out; some of them are not there.
NODE_IDS = st.just(frozenset[str]()) | st.frozensets(st.integers(0, 14).map(lambda i: f"n{i}"), max_size=4)
#: Nodes that a job was last on, and its slots there.
LAST_HELD = st.just(()) | st.dictionaries(st.integers(0, 14).map(lambda i: f"n{i}"), st.integers(1, 6), max_size=4).map(
    lambda held: tuple(held.items())
)
SHAPES = st.builds(
    request,
    st.just(""),
    st.integers(1, 7),
    st.integers(1, 5),
    priority=st.integers(0, 2),
    age=st.integers(0, 9),
    min_blocks=st.none() | st.integers(1, 3),
    plan=st.sampled_from([Parallelism(), Parallelism(strategy="fsdp", shard=2), Parallelism(tensor=2)]),
    spread=st.booleans(),
    requirements=REQUIREMENTS,
    prefers=NODE_IDS,
    leaves_out=NODE_IDS,
    last_held=LAST_HELD,
)
MANY_NODES = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sets(st.integers(0, 4)),
        st.sampled_from(["cpu", "cuda", "tpu"]),
        st.sampled_from([True, True, True, False]),
        LABEL_SETS,
        TAINT_SETS,
    ),
    max_size=14,
).map(
    lambda rows: [
        NodeView(f"n{i}", f"n{i % 11}", device, slots, tuple(slot for slot in free if slot < slots), up, labels, taints)
        for i, (slots, free, device, up, labels, taints) in enumerate(rows)
    ]
)
MANY_JOBS = st.lists(SHAPES, max_size=20).map(lambda jobs: [replace(each, job_id=f"j{i}") for i, each in enumerate(jobs)])


@settings(max_examples=250, deadline=None)
@given(MANY_JOBS, MANY_NODES)
def test_the_indexed_placement_answers_as_the_plain_one_does_word_for_word(queue: list[Request], nodes: list[NodeView]) -> None:
    assert place(queue, nodes) == plain_placement.place(queue, nodes)


@settings(deadline=None)
@given(MANY_JOBS, MANY_NODES)
def test_what_is_left_for_growing_is_the_same_as_by_the_plain_placement(queue: list[Request], nodes: list[NodeView]) -> None:
    room, plain = Room(nodes, {each.requirements for each in queue}), plain_placement.Room(nodes)
    place(queue, nodes, room)
    plain_placement.place(queue, nodes, plain)
    assert {node_id: (left.free, left.aside) for node_id, left in room.nodes.items()} == {
        node_id: (free, plain.aside[node_id]) for node_id, free in plain.free.items()
    }
