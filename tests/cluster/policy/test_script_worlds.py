"""Elastic scripts: with which world one is started again, and when; what the loss of a node counts for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paceline.cluster.policy.decide import decide
from paceline.cluster.policy.decisions import Restart, Stop
from paceline.cluster.policy.elastic import RunningGang, SlotAssignment, is_steady
from paceline.cluster.policy.gang_scaling import plan_gangs
from paceline.cluster.policy.placement import NodeView, Placement, Request, place
from paceline.cluster.policy.script_worlds import LONGEST_REST_SECONDS, REST_SECONDS, NextWorld, next_world, rests_until
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from tests.cluster.policy.test_decide import ENDED, LOST, ORDERED, PAUSE, SCRIPT, crashed, job, rank, report
from tests.cluster.policy.test_placement import NOW, node, placed, request

ELASTIC = SCRIPT | {"saves": True, "is_elastic": True}


def wants(nodes: int, least: int = 1, most: int | None = None, *, slots: int = 1, **known: Any) -> Request:
    return replace(request("job", nodes, slots, age=100), min_blocks=least, most_blocks=most, spread=True, **known)


def script(request: Request, *names: str, job_id: str = "job", rests: float = 0.0) -> RunningGang:
    seats = [
        SlotAssignment(number, name, slot)
        for number, (name, slot) in enumerate((n, s) for n in names for s in range(request.slots_per_block))
    ]
    ranks = request.blocks * request.slots_per_block
    facts: dict[str, Any] = {"least": 1, "target": ranks, "most": ranks, "ceiling": ranks, "rests_until": NOW + timedelta(seconds=rests)}
    return RunningGang(job_id, "cpu", request.slots_per_block, tuple(seats), (), request=replace(request, job_id=job_id), **facts)


def world(known: RunningGang, nodes: list[NodeView], *waiting: Request) -> NextWorld:
    assert known.request is not None
    return next_world(known, known.request, waiting, nodes, NOW)


def why(found: NextWorld) -> str | None:
    assert found.change is None or (found.change.to, found.change.reason, found.change.ends_generation) == (
        JobState.STOPPING,
        EndReason.RESIZED,
        True,
    )
    return found.change.why.partition(":")[0] + found.change.why.rpartition("on")[2] if found.change else None


def taken(name: str, slots: int = 1) -> NodeView:
    return node(name, slots, free=0)


MORE = "there is room for more"


@pytest.mark.parametrize(
    ("known", "nodes", "expected"),
    [
        (script(wants(2), "a", "b"), [taken("a"), taken("b"), node("c", 1)], None),  # as large as it may be
        (script(wants(2), "a"), [taken("a"), node("b", 1)], f"{MORE} 2 nodes instead of 1"),
        (script(wants(2), "a"), [taken("a"), taken("b")], None),
        (script(wants(2), "a"), [taken("a"), node("b", 1, schedulable=False)], None),
        (script(wants(2), "a"), [taken("a"), node("b", 1, device="cuda")], None),  # a gang never mixes devices
        (script(wants(2, slots=2), "a"), [taken("a", 2), node("b", 2, free=1)], None),  # a node has all of its ranks, or none
        (script(wants(1, most=3), "a"), [taken("a"), node("b", 1), node("c", 1)], f"{MORE} 3 nodes instead of 1"),
        (script(wants(1), "a", "b"), [taken("a"), taken("b")], "it is to have 1 1 node instead of 2"),  # its user wants that
    ],
)
def test_which_world_it_should_have(known: RunningGang, nodes: list[NodeView], expected: str | None) -> None:
    assert why(world(known, nodes)) == expected


TWO_TAKEN = [taken("a"), taken("b")]


@pytest.mark.parametrize(
    ("known", "nodes", "queue", "expected"),
    [
        (script(wants(2), "a"), [taken("a"), node("b", 1)], request("first", 1, age=900), None),  # it takes the slot
        (script(wants(2), "a"), [taken("a"), node("b", 1)], request("wide", 2, priority=90), None),  # it would take both
        (script(wants(2), "a"), [taken("a"), node("b", 1)], request("later", 2), f"{MORE} 2 nodes instead of 1"),  # not its turn
        (script(wants(1, most=2), "a", "b"), TWO_TAKEN, request("later"), "others wait for the slots 1 node instead of 2"),
        (script(wants(1, most=2), "a", "b"), TWO_TAKEN, request("wide", 2), None),  # which would not fit there either
        (script(wants(1, most=2), "a", "b"), TWO_TAKEN, request("urgent", 2, priority=90), None),  # it would be left without a node
        (script(wants(2), "a", "b"), TWO_TAKEN, request("urgent", priority=90), None),  # what it should have, it keeps
    ],
)
def test_others_that_wait_have_their_turn(known: RunningGang, nodes: list[NodeView], queue: Request, expected: str | None) -> None:
    assert why(world(known, nodes, queue)) == expected


def test_it_rests_between_two_worlds_and_says_until_when() -> None:
    resting = world(script(wants(2), "a", rests=5), [taken("a"), node("b", 1)])
    assert (resting.change, resting.rests) == (None, True)
    assert resting.lacks is not None
    assert resting.lacks.text == ("runs on 1 of 2 nodes; there is room for 2, and it starts again with them at 2026-11-20T09:00:05+00:00")
    full = world(script(wants(2), "a", rests=5), [taken("a")])
    assert (full.rests, full.lacks and full.lacks.text) == (False, "runs on 1 of 2 nodes; 1 more node with 1 free slot wanted")


def test_the_rest_doubles_with_each_change_up_to_its_limit() -> None:
    rests = [(rests_until(NOW, changes) - NOW).total_seconds() for changes in (0, 1, 2, 3, 99)]
    assert rests == [REST_SECONDS, 2 * REST_SECONDS, 4 * REST_SECONDS, 8 * REST_SECONDS, LONGEST_REST_SECONDS]


def test_one_script_at_a_time_is_started_again() -> None:
    nodes = [taken("a"), taken("b"), node("c", 1)]
    gangs = [script(wants(2), "a", job_id="one"), script(wants(2), "b", job_id="two")]
    steps = plan_gangs(gangs, [], nodes, NOW)
    assert [(step.job_id, step.change is not None, step.rests) for step in steps] == [("one", True, False), ("two", False, True)]
    assert [step.change for step in plan_gangs(gangs, [], nodes, NOW, restarting=True)] == [None, None]


def test_unwanted_slots_go_to_a_script_on_further_nodes_of_one_kind() -> None:
    nodes = [node("a", 1), node("b", 1), node("c", 1), node("d", 1, device="cuda")]
    assert placed(place([wants(1, most=8)], nodes[:3])) == {"job": ["a", "b", "c"]}
    assert placed(place([wants(2, most=8), request("later", 1)], nodes[:3])) == {"job": ["a", "b"], "later": ["c"]}
    (verdict,) = place([wants(1, most=3, slots=2)], [node("a", 4), node("b", 2)])
    assert isinstance(verdict, Placement)
    assert [(share.node_id, len(share.slots)) for share in verdict.shares] == [("b", 2), ("a", 2)]  # never two shares of one node


def running(*ranks: RankView, **known: Any) -> JobView:
    return job(JobState.RUNNING, *ranks, **ELASTIC, **known)


AWAY = rank(1, reachable=False)
DRAGGED = crashed(0, failure=report(0, "peer_lost"))


@pytest.mark.parametrize(
    ("view", "reason", "counts"),
    [
        (running(rank(0), LOST), EndReason.NODE_LOST, False),
        (running(DRAGGED, LOST), EndReason.NODE_LOST, False),
        (running(DRAGGED, AWAY), EndReason.NODE_LOST, False),  # its node is not lost yet
        (running(DRAGGED, crashed(1, failure=ORDERED)), EndReason.NODE_LOST, False),
        (running(crashed(0), AWAY), EndReason.RANK_CRASHED, True),  # that was its own fault
        (running(DRAGGED, rank(1)), EndReason.RANK_CRASHED, True),
        (job(JobState.RUNNING, DRAGGED, LOST, **SCRIPT), EndReason.NODE_LOST, True),  # it has one size only
    ],
)
def test_losing_a_node_is_no_failure_of_an_elastic_script(view: JobView, reason: EndReason, counts: bool) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Restart)
    assert (decision.to, decision.reason, decision.counts_as_restart) == (JobState.RECOVERING, reason, counts)
    assert decision.ends_generation
    none_left = decide(replace(view, restarts=3), NOW)
    assert none_left is not None
    assert (none_left.to is JobState.RECOVERING) is not counts


def test_a_node_that_drains_is_left_and_another_size_is_not_decided_here() -> None:
    leaving = decide(running(rank(0), rank(1, leaving=True), target=2), NOW)
    assert isinstance(leaving, Stop)
    assert (leaving.to, leaving.reason, leaving.ends_generation) == (JobState.STOPPING, EndReason.PREEMPTED, True)
    assert decide(running(rank(0), target=2), NOW) is None


def test_only_one_that_runs_and_is_well_changes_its_world() -> None:
    assert is_steady(running(rank(0)))
    assert not is_steady(running(rank(0, RankState.STARTING)))
    assert not is_steady(running(rank(0), **PAUSE))
    assert not is_steady(job(JobState.RECOVERING, rank(0), **ELASTIC, **ENDED))
    assert not is_steady(job(JobState.RUNNING, rank(0), desired=Intent.RUN, **SCRIPT))
