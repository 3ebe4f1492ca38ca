"""Who gets the slots that the queue has left, who gives some back, and what is said of those who get none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.decide import PREPARATION_SECONDS, START_SECONDS
from paceline.cluster.policy.decisions import ResizeGang
from paceline.cluster.policy.elastic import MOST_FAILURES, JoinFailure, RunningGang, SlotAssignment
from paceline.cluster.policy.extension import extend
from paceline.cluster.policy.gang_scaling import WARM_UP_SECONDS, GangPlan, gangs_to_shrink, plan_gangs
from paceline.cluster.policy.placement import NodeView, Placement, Request, Requirements, Room, place
from tests.cluster.policy.test_elastic import NOW, cold, gang, member, warm
from tests.cluster.policy.test_extension import wanted
from tests.cluster.policy.test_placement import NODES, QUEUES, node, request


def new_slots(step: GangPlan) -> list[str]:
    return [share.node_id for share in step.new_slots]


def code(step: GangPlan) -> str | None:
    return step.lacks.code if step.lacks else None


def one(known: RunningGang, nodes: list[NodeView], *queue: Request) -> GangPlan:
    (step,) = plan_gangs([known], queue, nodes, NOW)
    return step


def test_the_ranks_of_a_lost_node_join_on_one_node_and_a_spare_on_any() -> None:
    left = gang(member(0, "a"), member(1, "a"), target=4, spares=1, most_per_node=None, block=2)
    nodes = [node("a", 2, free=0), node("b", 1), node("c", 3)]
    assert new_slots(one(left, nodes)) == ["c", "c", "c"]
    narrow = [node("a", 2, free=0), node("b", 1), node("c", 1)]
    step = one(left, narrow)
    assert new_slots(step) == ["b", "c"]  # half of the block, and the spare
    assert step.lacks is not None
    assert step.lacks.text == (
        "runs with 2 of 4 ranks; 1 more slot wanted; the free ones are on other nodes than the rest of their 2 (resources.slots_per_node)"
    )


def test_what_is_set_aside_for_a_job_that_waits_is_not_for_growing() -> None:
    nodes = [node("a", 1, free=0), node("b", 1, free=1), node("n0", 1, free=0)]
    step = one(gang(member(0)), nodes, request("wide", 3))
    assert (new_slots(step), code(step)) == ([], "no_room_to_grow")
    assert step.lacks is not None
    assert step.lacks.text == "runs with 1 of 2 ranks; 1 more slot wanted; the free ones are kept for a job that waits"


def test_everybody_gets_to_its_target_before_anybody_grows() -> None:
    greedy = replace(gang(member(0, "a"), target=1, most=4), job_id="greedy")
    lame = replace(gang(member(0, "b"), target=2), job_id="lame")
    nodes = [node("a", 1, free=0), node("b", 1, free=0), node("c", 1), node("d", 1)]
    steps = plan_gangs([greedy, lame], [], nodes, NOW)
    assert {step.job_id: new_slots(step) for step in steps} == {"greedy": ["d"], "lame": ["c"]}


def test_why_a_gang_is_smaller_than_it_should_be() -> None:
    (full,) = plan_gangs([gang(member(0, "a"))], [], [node("a", 1, free=0)], NOW)
    assert full.lacks is not None
    assert full.lacks.text == "runs with 1 of 2 ranks; 1 more slot wanted; none is free"
    (narrow,) = plan_gangs([gang(member(0, "a"))], [], [node("a", 2, free=1)], NOW)
    assert narrow.lacks is not None
    assert narrow.lacks.text == "runs with 1 of 2 ranks; 1 more slot wanted; a has 1 of its ranks already (resources.spread)"
    (bare,) = plan_gangs([gang(member(0, "a"), target=1, spares=1)], [], [node("a", 1, free=0)], NOW)
    assert bare.lacks is not None
    assert bare.lacks.text == "has 0 of 1 spares; 1 more slot wanted; none is free"
    assert one(gang(member(0, "a"), parked=(cold(1),)), [node("a", 1, free=0)]).lacks is None  # it is on its way


def test_a_rank_that_failed_to_start_is_tried_again_later_and_it_is_said_why() -> None:
    nodes = [node("n0", 1, free=0), node("b", 1)]
    fresh = gang(member(0), join_failures=(JoinFailure(NOW, "no such device"),))
    assert (new_slots(one(fresh, nodes)), code(one(fresh, nodes))) == ([], "cannot_join")
    later = replace(fresh, join_failures=(JoinFailure(NOW - timedelta(seconds=2), "no such device"),))
    assert new_slots(one(later, nodes)) == ["b"]
    assert one(later, nodes).why == "runs with 1 of 2 ranks; attempt 2, the last one ended because: no such device"
    exhausted = replace(
        fresh, join_failures=tuple(JoinFailure(NOW - timedelta(seconds=100), "no such device") for _ in range(MOST_FAILURES))
    )
    assert (new_slots(one(exhausted, nodes)), code(one(exhausted, nodes))) == ([], "cannot_join")


def test_a_rank_on_a_draining_node_does_not_wait_for_a_rank_that_cannot_start() -> None:
    nodes = [node("b", 1)]
    leaving = gang(member(0, leaving=True), member(1))
    assert (one(leaving, nodes).change, new_slots(one(leaving, nodes))) == (None, ["b"])
    exhausted = replace(leaving, join_failures=tuple(JoinFailure(NOW, "boom") for _ in range(MOST_FAILURES)))
    change = one(exhausted, nodes).change
    assert isinstance(change, ResizeGang)
    assert (change.members.survivors, change.members.joining) == ((1,), ())


LATE = START_SECONDS + WARM_UP_SECONDS


def slow(rank: int, seconds: float, node_id: str = "c", *, prepares: bool = False) -> SlotAssignment:
    """A parked rank that has been starting for so long."""
    return SlotAssignment(rank, node_id, 0, starts_since=NOW - timedelta(seconds=seconds), prepares=prepares)


def test_a_joiner_that_hangs_while_it_starts_is_given_up() -> None:
    """A drain waited for it for ever, and nobody was told."""
    nodes = [node("c", 1, free=0), node("d", 1)]
    for seconds, given_up in ((LATE - 1, ()), (LATE, (2,))):
        step = one(gang(member(0), member(1, leaving=True), parked=(slow(2, seconds),)), nodes)
        assert (step.change, step.given_up) == (None, given_up)
    assert step.why == "it did not get ready within 720 s"
    installs = gang(member(0), parked=(slow(1, LATE, prepares=True), slow(2, LATE + PREPARATION_SECONDS, prepares=True)), target=3)
    assert one(installs, nodes).given_up == (2,)


def test_a_rank_on_a_draining_node_waits_for_no_second_joiner_that_may_hang() -> None:
    timed_out = JoinFailure(NOW, "it did not get ready within 720 s", "c", timed_out=True)
    leaving = gang(member(0, leaving=True), member(1), join_failures=(timed_out,))
    change = one(leaving, [node("c", 1, free=0), node("d", 1)]).change
    assert isinstance(change, ResizeGang)
    assert (change.members.survivors, change.members.joining) == ((1,), ())


def test_after_a_failure_another_node_has_its_turn() -> None:
    failure = JoinFailure(NOW - timedelta(seconds=2), "no such device", "b")
    known = gang(member(0), join_failures=(failure,))
    assert new_slots(one(known, [node("n0", 1, free=0), node("b", 1), node("c", 2)])) == ["c"]
    assert new_slots(one(known, [node("n0", 1, free=0), node("b", 1)])) == ["b"]


def test_only_gangs_in_the_way_give_slots_back() -> None:
    small = replace(gang(member(0, "a"), member(1, "b"), target=1, most=2), job_id="small")
    other = replace(gang(SlotAssignment(0, "c", 0), SlotAssignment(1, "d", 0), target=1, most=2), job_id="other")
    nodes = [node(name, 1, free=0) for name in "abcd"]
    assert gangs_to_shrink([small, other], [request("one")], nodes) == {"small"}
    assert gangs_to_shrink([small, other], [request("two", 2)], nodes) == {"small", "other"}
    assert gangs_to_shrink([small, other], [request("three", 3)], nodes) == frozenset()  # it would not help
    assert gangs_to_shrink([gang(member(0, "a"), target=1)], [request("one")], nodes) == frozenset()


def six_slots(extras: int, **known: Any) -> list[RunningGang]:
    """Two gangs on one node: one with so many ranks beyond its two, and one that has one rank and is to have four."""
    wide = gang(*(SlotAssignment(slot, "n", slot) for slot in range(2 + extras)), target=2, most=5, most_per_node=None)
    lame = gang(SlotAssignment(0, "n", 5), target=4, most_per_node=None, **known)
    return [replace(wide, job_id="wide"), replace(lame, job_id="lame")]


def test_a_gang_gives_ranks_beyond_its_size_to_one_that_lacks_some() -> None:
    """Had the other job not started with fewer ranks, it would have got them from the queue."""
    steps = {step.job_id: step for step in plan_gangs(six_slots(3), [], [node("n", 6, free=0)], NOW)}
    change = steps["wide"].change
    assert isinstance(change, ResizeGang)
    assert (change.members.survivors, change.why) == ((0, 1), "others wait for the slots: from 5 to 2 ranks")
    after = {step.job_id: step for step in plan_gangs(six_slots(0), [], [NodeView("n", "n", "cpu", 6, (2, 3, 4), True)], NOW)}
    assert (new_slots(after["lame"]), new_slots(after["wide"])) == (["n"] * 3, [])


def test_a_gang_keeps_its_extra_ranks_where_they_are_of_no_use_to_one_that_lacks_some() -> None:
    full = [node("n", 6, free=0)]
    failing = six_slots(3, join_failures=(JoinFailure(NOW, "no such device"),))
    elsewhere = six_slots(3, requirements=Requirements(labels=frozenset({"zone=far"})))
    for others in (failing, elsewhere, six_slots(2, block=4), six_slots(3, parked=(cold(1), cold(2), cold(3)))):
        assert [step.change for step in plan_gangs(others, [], full, NOW)] == [None, None]


def test_a_gang_keeps_its_extra_ranks_where_the_jobs_that_wait_fit_beside_it() -> None:
    """It lost half of its ranks to a job that was submitted between two phases of a step, or was held up, with free slots for it."""
    big = gang(*(SlotAssignment(number, "a", 4 + number) for number in range(4)), target=2, most=4, most_per_node=None)
    nodes = [node("a", 8, free=4)]
    assert gangs_to_shrink([big], [request("one")], nodes) == frozenset()
    assert gangs_to_shrink([big], [request("one"), request("four", 4)], nodes) == {"job"}
    assert one(big, nodes, request("one")).change is None


def test_parked_ranks_that_are_there_to_grow_are_given_back_too() -> None:
    growing = gang(member(0, "a"), parked=(warm(1),), target=1, most=2)
    nodes = [node("a", 1, free=0), node("n1", 1, free=0)]
    step = one(growing, nodes, request("one"))
    assert (step.change, step.released) == (None, (1,))
    assert one(replace(growing, spares=1), nodes, request("one")).released == ()  # a spare was asked for


@given(QUEUES, NODES, st.integers(0, 6), st.integers(1, 3))
def test_the_queue_loses_nothing_to_a_gang_that_grows(queue: list[Request], nodes: list[NodeView], slots: int, per_node: int) -> None:
    """Whatever is given to gangs is free, and no job that was placed, or waits with slots set aside, has less room for it."""
    room = Room(nodes)
    placed = {
        (share.node_id, slot)
        for each in place(queue, nodes, room)
        if isinstance(each, Placement)
        for share in each.shares
        for slot in share.slots
    }
    aside = {node_id: left.aside for node_id, left in room.nodes.items()}
    given_away = {(share.node_id, slot) for share in extend(wanted(slots, per_node), nodes, room) for slot in share.slots}
    by_id = {each.id: each for each in nodes}
    assert not given_away & placed
    assert all(slot in by_id[name].free and by_id[name].schedulable for name, slot in given_away)
    assert all(
        len(room.nodes[each.id].free) >= min(aside[each.id], len(set(each.free) - {s for n, s in placed if n == each.id}))
        for each in nodes
        if each.schedulable
    )
