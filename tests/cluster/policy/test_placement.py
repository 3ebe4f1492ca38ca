"""Placement: examples for each reason, and properties over any queue and any cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paceline.cluster.policy.placement import NodeView, Placement, QueuedGang, Request, Room, place
from paceline.training.schema.parallelism import Parallelism
from tests.cluster import plain_placement

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def node(name: str, slots: int = 4, *, free: int | None = None, device: str = "cpu", schedulable: bool = True) -> NodeView:
    return NodeView(name, name, device, slots, tuple(range(slots))[: slots if free is None else free], schedulable)


def request(job: str, nodes: int = 1, slots: int = 1, *, priority: int = 50, age: int = 0) -> Request:
    return Request(job, nodes, slots, priority, NOW - timedelta(seconds=age))


def reason(verdicts: list[Placement | QueuedGang], job: str = "job") -> tuple[str, str]:
    pending = next(each for each in verdicts if each.job_id == job)
    assert isinstance(pending, QueuedGang)
    return pending.reason.code, pending.reason.text


def placed(verdicts: list[Placement | QueuedGang]) -> dict[str, list[str]]:
    return {each.job_id: [share.node_id for share in each.shares] for each in verdicts if isinstance(each, Placement)}


def test_a_gang_takes_its_slots_on_distinct_nodes() -> None:
    (verdict,) = place([request("job", 2, 2)], [node("a"), node("b")])
    assert isinstance(verdict, Placement)
    assert [(share.node_id, share.slots) for share in verdict.shares] == [("a", (0, 1)), ("b", (0, 1))]


def test_the_fullest_node_that_fits_is_taken() -> None:
    assert placed(place([request("job", 1, 2)], [node("a", free=4), node("b", free=2), node("c", free=1)])) == {"job": ["b"]}


def test_priority_goes_before_age_and_age_before_the_rest() -> None:
    queue = [request("young", age=1), request("old", age=9), request("urgent", priority=90)]
    verdicts = place(queue, [node("a", 1)])
    assert [each.job_id for each in verdicts] == ["urgent", "old", "young"]
    assert placed(verdicts) == {"urgent": ["a"]}


def test_a_gang_never_mixes_devices_and_prefers_gpus() -> None:
    mixed = [node("a", 2), node("b", 2, device="cuda")]
    assert reason(place([request("job", 2)], mixed))[0] == "cluster_too_small"
    assert placed(place([request("job")], mixed)) == {"job": ["b"]}


def test_the_reason_names_the_largest_free_node() -> None:
    verdicts = place([request("job", 2, 4)], [node("a", free=1), node("b", free=2)])
    assert reason(verdicts) == ("slots_taken", "needs 2 nodes with 4 free slots each; the largest free is 2 (node b)")


def test_the_reason_without_any_node_says_how_to_add_one() -> None:
    (pending,) = place([request("job")], [])
    assert isinstance(pending, QueuedGang)
    assert pending.reason.code == "no_nodes"
    assert pending.reason.next_step == "add a node: paceline worker"


def test_a_cluster_that_is_too_small_says_so() -> None:
    code, text = reason(place([request("job", 2, 8)], [node("a", 8), node("b", 4)]))
    assert (code, text) == (
        "cluster_too_small",
        "needs 2 nodes with 8 slots each; the cluster has 1 such node: the largest has 8 slots (a)",
    )


def test_a_cordoned_node_is_named_as_the_way_out() -> None:
    (pending,) = place([request("job", 2)], [node("a"), node("b", schedulable=False)])
    assert isinstance(pending, QueuedGang)
    assert pending.reason.code == "nodes_unavailable"
    assert pending.reason.next_step == "bring back or uncordon b"


def test_only_unavailable_nodes_is_no_crash() -> None:
    assert reason(place([request("job")], [node("a", schedulable=False)]))[0] == "nodes_unavailable"


def test_a_wide_job_is_not_starved_by_small_ones() -> None:
    queue = [request("wide", 2, 2, age=9), request("small", age=1)]
    verdicts = place(queue, [node("a", 2), node("b", 2, free=1)])
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
    elastic = replace(request("job", 4), min_nodes=2)
    assert placed(place([elastic], [node("a"), node("b"), node("c")])) == {"job": ["a", "b", "c"]}
    assert placed(place([elastic], [node(name) for name in "abcde"])) == {"job": ["a", "b", "c", "d"]}
    assert reason(place([elastic], [node("a"), node("b", free=0)])) == (
        "slots_taken",
        "needs 2 nodes with 1 free slot each; the largest free is 4 (node a)",
    )


def test_a_job_that_may_be_smaller_reserves_what_it_starts_with() -> None:
    elastic = replace(request("wide", 3, age=9), min_nodes=2)
    nodes = [node("a", 1), node("b", 1, free=0), node("c", 2, free=0), node("d", 1)]
    assert placed(place([elastic, request("small")], nodes)) == {"wide": ["a", "d"]}
    assert placed(place([elastic, request("small")], [*nodes[:3], node("d", 1, free=0)])) == {}


def test_a_job_in_groups_of_ranks_starts_with_whole_groups() -> None:
    pairs = replace(request("job", 6), min_nodes=2, plan=Parallelism(strategy="fsdp", shard=2))
    assert placed(place([pairs], [node(name) for name in "abcde"])) == {"job": ["a", "b", "c", "d"]}
    assert placed(place([pairs], [node("a")])) == {}


NODES = st.lists(
    st.builds(
        lambda slots, free, device, schedulable: (slots, min(slots, free), device, schedulable),
        st.integers(1, 4),
        st.integers(0, 4),
        st.sampled_from(["cpu", "cuda"]),
        st.booleans(),
    ),
    max_size=6,
).map(lambda rows: [node(f"n{i}", slots, free=free, device=device, schedulable=up) for i, (slots, free, device, up) in enumerate(rows)])
QUEUES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2), st.integers(0, 9)), max_size=8).map(
    lambda rows: [request(f"j{i}", nodes, slots, priority=priority, age=age) for i, (nodes, slots, priority, age) in enumerate(rows)]
)


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
        assert len({share.node_id for share in verdict.shares}) == want.nodes
        assert len({by_id[share.node_id].device for share in verdict.shares}) == 1
        for share in verdict.shares:
            assert by_id[share.node_id].schedulable
            assert len(share.slots) == want.slots_per_node
            assert set(share.slots) <= set(by_id[share.node_id].free)
            assert not taken & {(share.node_id, slot) for slot in share.slots}
            taken |= {(share.node_id, slot) for slot in share.slots}


@given(QUEUES, NODES)
def test_every_request_gets_one_verdict_whatever_the_order(queue: list[Request], nodes: list[NodeView]) -> None:
    verdicts = place(queue, nodes)
    assert sorted(each.job_id for each in verdicts) == sorted(each.job_id for each in queue)
    assert place(list(reversed(queue)), nodes) == verdicts


@given(QUEUES, NODES)
def test_the_first_in_line_is_placed_whenever_it_fits(queue: list[Request], nodes: list[NodeView]) -> None:
    verdicts = place(queue, nodes)
    if not verdicts:
        return
    first = next(each for each in queue if each.job_id == verdicts[0].job_id)
    ready = [each for each in nodes if each.schedulable and len(each.free) >= first.slots_per_node]
    fits = any(sum(each.device == device for each in ready) >= first.nodes for device in ("cpu", "cuda"))
    assert isinstance(verdicts[0], Placement) == fits


@given(QUEUES, NODES)
def test_no_job_starves_while_small_jobs_keep_coming(queue: list[Request], nodes: list[NodeView]) -> None:
    nodes = [NodeView(each.id, each.name, each.device, each.slots, tuple(range(each.slots)), True) for each in nodes]
    possible = [each for each in queue if isinstance(place([each], nodes)[0], Placement)]
    assume(possible)
    assert _rounds_until_placed(possible[0], nodes) <= sum(each.slots for each in nodes)


def _rounds_until_placed(wide: Request, nodes: list[NodeView]) -> int:
    """In a cluster full of small jobs, of which the oldest ends in each round, while more come than there is room for."""
    slots = sum(each.slots for each in nodes)
    running = [each for each in place([request(f"old{n}") for n in range(slots)], nodes) if isinstance(each, Placement)]
    for rounds in range(1, 2 * slots + 1):
        running.pop(0)
        younger = [request(f"young{rounds}.{n}", priority=wide.priority, age=-rounds) for n in range(slots)]
        placements = [each for each in place([wide, *younger], [_without(each, running) for each in nodes]) if isinstance(each, Placement)]
        if any(each.job_id == wide.job_id for each in placements):
            return rounds
        running += placements
    raise AssertionError(f"{wide} starved")


def _without(each: NodeView, running: list[Placement]) -> NodeView:
    taken = {slot for gang in running for share in gang.shares if share.node_id == each.id for slot in share.slots}
    return NodeView(each.id, each.name, each.device, each.slots, tuple(slot for slot in each.free if slot not in taken), True)


SHAPES = st.tuples(
    st.integers(1, 5), st.integers(1, 5), st.integers(0, 2), st.integers(0, 9), st.none() | st.integers(1, 3), st.sampled_from([1, 2])
)
MANY_NODES = st.lists(
    st.tuples(
        st.integers(1, 5), st.sets(st.integers(0, 4)), st.sampled_from(["cpu", "cuda", "tpu"]), st.sampled_from([True, True, True, False])
    ),
    max_size=14,
).map(lambda rows: [NodeView(f"n{i}", f"n{i % 11}", device, slots, tuple(free), up) for i, (slots, free, device, up) in enumerate(rows)])
MANY_JOBS = st.lists(SHAPES, max_size=20).map(
    lambda rows: [
        replace(
            request(f"j{i}", nodes, slots, priority=priority, age=age),
            min_nodes=least,
            plan=Parallelism() if shard == 1 else Parallelism(strategy="fsdp", shard=shard),
        )
        for i, (nodes, slots, priority, age, least, shard) in enumerate(rows)
    ]
)


@settings(max_examples=250)
@given(MANY_JOBS, MANY_NODES)
def test_the_indexed_placement_answers_as_the_plain_one_does_word_for_word(queue: list[Request], nodes: list[NodeView]) -> None:
    assert place(queue, nodes) == plain_placement.place(queue, nodes)


@given(MANY_JOBS, MANY_NODES)
def test_what_is_left_for_growing_is_the_same_as_by_the_plain_placement(queue: list[Request], nodes: list[NodeView]) -> None:
    room, plain = Room(nodes), plain_placement.Room(nodes)
    place(queue, nodes, room)
    plain_placement.place(queue, nodes, plain)
    assert {node_id: (left.free, left.aside) for node_id, left in room.nodes.items()} == {
        node_id: (free, plain.aside[node_id]) for node_id, free in plain.free.items()
    }
