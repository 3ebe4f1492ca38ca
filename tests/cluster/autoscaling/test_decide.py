"""How many nodes a pool should have: what is launched, what is drained, and why not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.autoscaling.decide import decide, may_hold
from paceline.cluster.autoscaling.decisions import DrainNode, LaunchNodes, ScalingDecision
from paceline.cluster.autoscaling.facts import ExpectedEnd, GrowingGang, NodeFacts, PendingJob, PoolFacts, ScalingFacts
from paceline.cluster.policy.placement import Request
from paceline.cluster.policy.requirements import Requirements

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
POOL = PoolFacts("work", slots=4, max_nodes=4)


def job(job_id: str = "a", blocks: int = 4, *, waits: float = 60.0, safe: bool = True, **changes: Any) -> PendingJob:
    fields: dict[str, Any] = {"slots_per_block": 1, "priority": 0, "queued_at": NOW - timedelta(seconds=waits)}
    return PendingJob(Request(job_id, blocks, **fields | changes), survives_interruption=safe)


def node(node_id: str, *, idle: float | None = 0.0, free: int | None = None, pool: PoolFacts = POOL, **changes: Any) -> NodeFacts:
    since = None if idle is None else NOW - timedelta(seconds=idle)
    left = (0 if idle is None else pool.slots) if free is None else free
    return NodeFacts(node_id, pool.name, pool.slots, left, since, **changes)


def ends_in(seconds: float, job_id: str = "x", **slots: int) -> ExpectedEnd:
    return ExpectedEnd(job_id, NOW + timedelta(seconds=seconds), slots)


def look(
    *pending: PendingJob,
    pools: tuple[PoolFacts, ...] = (POOL,),
    nodes: tuple[NodeFacts, ...] = (),
    ends: tuple[ExpectedEnd, ...] = (),
    **launching: int,
) -> ScalingDecision:
    return decide(ScalingFacts(pools, nodes, pending, launching, expected_ends=ends), NOW)


def gang(lacks: int = 2, *, sizes: tuple[int, ...] = (), waits: float = 60.0, **known: Any) -> GrowingGang:
    return GrowingGang(job("r", lacks, waits=waits), sizes or tuple(range(lacks, 0, -1)), "runs with 2 of 4 ranks", **known)


def grow(
    *growing: GrowingGang, pool: PoolFacts = POOL, nodes: tuple[NodeFacts, ...] = (), pending: tuple[PendingJob, ...] = (), coming: int = 0
) -> ScalingDecision:
    return decide(ScalingFacts((pool,), nodes, pending, {pool.name: coming}, growing=growing), NOW)


def test_a_pool_grows_for_a_job_that_runs_with_fewer_ranks_than_it_wants() -> None:
    decided = grow(gang())
    assert decided.launches == (LaunchNodes("work", 1, "job r runs with 2 of 4 ranks"),)
    assert decided.grows_for == ("r",)
    assert grow(gang(), coming=1) == ScalingDecision(), "what comes is counted"
    assert grow(gang(), nodes=(node("n1"),)) == ScalingDecision(), "it is about to grow there"
    assert grow(gang(waits=3)).launches == (), "it may get slots in a moment"
    assert grow(gang(24)).launches[0].count == 4, "as many as the pool may have"
    assert (
        grow(gang(24, sizes=(24, 20))).withheld[0].reason
        == "work may have 4 nodes more, and it lacks 6; work may have 4 nodes more, and it lacks 5"
    )
    assert grow(gang(), pool=replace(POOL, budget_node_hours=1.0, spent_node_hours=2.0)).withheld[0].pools == {
        "work": "work has used its budget of 1 node-hours"
    }


def test_a_node_that_could_not_start_a_job_is_no_room_for_it() -> None:
    """The job waits for another one, which nothing launched."""
    decided = look(job(leaves_out=frozenset({"n1"})), nodes=(node("n1"),))
    assert decided.launches == (LaunchNodes("work", 1, "job a waits for 4 slots"),)
    assert look(job(leaves_out=frozenset({"n1"})), nodes=(node("n1"), node("n2"))).launches == ()


def test_jobs_that_wait_come_before_those_that_want_more() -> None:
    decided = grow(gang(4), pool=replace(POOL, max_nodes=1), pending=(job("waits", 4),))
    assert decided.launches == (LaunchNodes("work", 1, "job waits waits for 4 slots"),)
    assert [(each.job_id, each.reason) for each in decided.withheld] == [("r", "work may have 0 nodes more, and it lacks 1")]


def test_an_idle_node_that_a_running_job_can_grow_onto_has_a_moment_and_is_drained_then() -> None:
    hasty = replace(POOL, idle_seconds=5.0)
    assert grow(gang(), pool=hasty, nodes=(node("n1", idle=50),)).drains == ()
    assert grow(gang(), pool=hasty, nodes=(node("n1", idle=61),)).drains == (DrainNode("n1", "work", "no job has used it for 61 s"),)
    assert grow(gang(), pool=hasty, nodes=(node("n1", idle=61),)).declined == ("r",), "or its pool would launch another at once"
    assert grow(gang(), pool=hasty, nodes=(node("n1", idle=50),)).declined == ()
    assert grow(gang(retry_at=NOW + timedelta(minutes=5)), pool=hasty, nodes=(node("n1", idle=61),)).declined == (), "told already"
    assert grow(gang(occupied=frozenset({"n1"})), pool=hasty, nodes=(node("n1", idle=50),), coming=1).drains, "it takes no more there"
    assert grow(gang(restarting=True), pool=hasty, nodes=(node("n1", idle=500),)).drains == (), "it starts again on it"


def test_a_job_that_has_not_grown_although_nodes_came_is_left_alone_for_a_while() -> None:
    """A pool launched a node for it, drained it for being idle, and launched it again, on and on."""
    decided = grow(gang(retry_at=NOW + timedelta(minutes=5)))
    assert decided.launches == ()
    assert decided.withheld[0].pools == {"work": "there were nodes for it and it has not grown; tried again at 12:05:00 UTC"}
    assert grow(gang(retry_at=NOW)).launches
    assert grow(gang(rests_until=NOW + timedelta(seconds=300))).withheld[0].reason == "it takes no more ranks before 12:05:00 UTC"
    assert grow(gang(rests_until=NOW + timedelta(seconds=30))).launches, "it takes them by the time that the node is ready"
    assert grow(gang(restarting=True)).launches == ()


def test_nodes_are_launched_for_a_whole_gang_and_one_more_for_nobody() -> None:
    assert look(job(blocks=6)).launches == (LaunchNodes("work", 2, "job a waits for 6 slots"),)
    assert look(job(blocks=6), work=2).launches == ()
    assert look(job(blocks=6), nodes=(node("n1"),)).launches[0].count == 1
    assert look(job("a", 2), job("b", 2)).launches[0].count == 1
    assert look(job(blocks=2, spread=True)).launches[0].count == 2
    assert look(job(blocks=3, slots_per_block=3)).launches[0].count == 3


def test_a_gang_that_may_be_smaller_gets_what_the_pool_may_have() -> None:
    assert look(job(blocks=40, min_blocks=16)).launches[0].count == 4
    (withheld,) = look(job(blocks=40)).withheld
    assert withheld.reason == "work may have 4 nodes more, and it lacks 10"
    assert withheld.pools == {"work": withheld.reason}


def test_a_node_that_has_left_takes_its_place_until_its_provider_has_ended_it() -> None:
    """The host of a node that was lost passed for free: the pool refused, and rested for five minutes."""
    other = replace(POOL, name="other", cost=5.0)
    facts = ScalingFacts((POOL, other), (), (job(blocks=16),), {}, {"work": 1})
    assert [launch.pool for launch in decide(facts, NOW).launches] == ["other"]
    assert [launch.pool for launch in decide(replace(facts, ending={}), NOW).launches] == ["work"]
    three = ScalingFacts((replace(POOL, min_nodes=4),), (node("n1"), node("n2"), node("n3")), (), {}, {"work": 1})
    assert decide(three, NOW).launches == ()
    assert decide(replace(three, ending={}), NOW).launches == (LaunchNodes("work", 1, "it is to have at least 4 nodes"),)


def test_the_more_urgent_job_gets_the_last_nodes() -> None:
    decided = look(job("old", 12, waits=900), job("urgent", 12, priority=5))
    assert decided.launches == (LaunchNodes("work", 3, "job urgent waits for 12 slots"),)
    assert [each.job_id for each in decided.withheld] == ["old"]


def test_nothing_is_launched_for_a_job_that_may_start_in_a_moment() -> None:
    assert look(job(waits=2)).withheld[0].reason == "it waits for less than 10 s, and may start in a moment"


def test_a_pool_with_other_nodes_is_named_with_what_is_wrong() -> None:
    asked = job(slots_per_block=8, blocks=1)
    assert look(asked).withheld[0].reason == "no pool has nodes for it (work: it needs 8 slots on one node, and those of work have 4)"
    labelled = job(requirements=Requirements(labels=frozenset({"ib=yes"})))
    assert look(labelled).withheld[0].reason == "no pool has nodes for it (work: no label ib=yes)"
    assert look(labelled).withheld[0].pools == {"work": "no label ib=yes"}
    assert look(job(), pools=()).withheld[0].reason == "there is no pool that could grow"


def test_a_node_that_the_job_cannot_use_is_no_room_for_it_and_goes_when_it_is_idle() -> None:
    """It passed for room at each look: no node was launched, nothing was said, and it was kept for the job that could not use it."""
    tainted = node("n1", idle=400, taints=frozenset({"new"}))
    decided = look(job(), nodes=(tainted,))
    assert decided.launches == (LaunchNodes("work", 1, "job a waits for 4 slots"),)
    assert look(job(), nodes=(tainted,), work=1).drains == (DrainNode("n1", "work", "no job has used it for 400 s"),)
    (withheld,) = look(job(), nodes=(tainted,), pools=(replace(POOL, max_nodes=1),)).withheld
    assert withheld.reason == "work may have 0 nodes more, and it lacks 1"
    tolerant = job(requirements=Requirements(tolerations=frozenset({"new"})))
    assert look(tolerant, nodes=(tainted,)) == ScalingDecision(), "it is about to start there"
    assert grow(gang(), nodes=(tainted,)).launches == (LaunchNodes("work", 1, "job r runs with 2 of 4 ranks"),)
    other = node("n1", idle=400, device="cuda")
    assert look(job(requirements=Requirements("cpu")), nodes=(other,)).launches[0].count == 1


def test_a_pool_grows_for_a_job_that_may_not_have_the_free_slots_of_a_node_which_is_kept_for_an_earlier_one() -> None:
    """The scheduler keeps the idle node of `a` for the job of two nodes: what comes later gets no slots there."""
    full, other = replace(POOL, name="a", max_nodes=2), replace(POOL, name="b", cost=2.0)
    nodes = (node("a1", pool=full, idle=None), node("a2", pool=full, idle=3 * 3600))
    of_two_nodes = job("early", 2, slots_per_block=4, waits=900, requirements=Requirements(labels=frozenset({"pool=a"})))
    pools = (replace(full, labels=frozenset({"pool=a"})), other)
    labelled = tuple(replace(each, labels=frozenset({"pool=a"})) for each in nodes)
    decided = look(of_two_nodes, job("late", 1, slots_per_block=4), pools=pools, nodes=labelled)
    assert decided.launches == (LaunchNodes("b", 1, "job late waits for 4 slots"),)
    assert [each.job_id for each in decided.withheld] == ["early"]
    assert decided.drains == (), "the idle node is kept for the job of two nodes"


def test_the_cheapest_pool_is_chosen_and_spot_only_by_jobs_that_survive_it() -> None:
    spot = replace(POOL, name="spot", spot=True, cost=0.3)
    assert look(job(), pools=(POOL, spot)).launches[0].pool == "spot"
    assert look(job(safe=False), pools=(POOL, spot)).launches[0].pool == "work"
    shaky = replace(spot, interrupted_at=NOW - timedelta(minutes=5))
    assert look(job(), pools=(POOL, shaky)).launches[0].pool == "work"
    resting = replace(spot, retry_at=NOW + timedelta(minutes=1))
    assert look(job(), pools=(POOL, resting)).launches[0].pool == "work"


def test_an_idle_node_is_drained_in_time_but_for_the_minimum_and_for_pending_jobs() -> None:
    nodes = (node("n1", idle=400), node("n2", idle=500), node("n3", idle=20))
    assert [each.node_id for each in look(nodes=nodes).drains] == ["n2", "n1"]
    assert look(nodes=nodes).drains[0] == DrainNode("n2", "work", "no job has used it for 500 s")
    assert [each.node_id for each in look(nodes=nodes, pools=(replace(POOL, min_nodes=2),)).drains] == ["n2"]
    assert look(job(blocks=12), nodes=nodes).drains == ()  # it is about to start there


def test_scale_to_zero_and_back_to_the_minimum() -> None:
    assert look(nodes=(node("n1", idle=301),)).drains
    assert look(pools=(replace(POOL, min_nodes=2),)).launches == (LaunchNodes("work", 2, "it is to have at least 2 nodes"),)
    assert look(pools=(replace(POOL, min_nodes=2, retry_at=NOW + timedelta(seconds=5)),)).launches == ()


def test_a_spent_budget_launches_nothing_and_drains_what_is_idle() -> None:
    spent = replace(POOL, budget_node_hours=10.0, spent_node_hours=10.5)
    decided = look(job(), pools=(spent,), nodes=(node("n1", idle=None), node("n2", idle=1, schedulable=False)))
    assert decided.withheld[0].reason == "work has used its budget of 10 node-hours"
    assert [each.node_id for each in decided.drains] == ["n2"]


pools = st.builds(
    lambda name, slots, least, more, spot, spent, apart: PoolFacts(
        name,
        slots,
        least,
        least + more,
        spot=spot,
        budget_node_hours=5.0 if spent else None,
        spent_node_hours=6.0,
        no_shared_folder="each of its nodes has its own folder" if apart else "",
    ),
    st.sampled_from(["a", "b"]),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@st.composite
def any_facts(draw: st.DrawFn) -> ScalingFacts:
    chosen = draw(st.lists(pools, max_size=2, unique_by=lambda pool: pool.name))
    nodes, launching, ends = [], {}, []
    for pool in chosen:
        count = draw(st.integers(0, pool.max_nodes))
        launching[pool.name] = draw(st.integers(0, pool.max_nodes - count))
        for number in range(count):
            idle = draw(st.one_of(st.none(), st.floats(0, 1000)))
            free = 0 if idle is None else pool.slots
            name = f"{pool.name}{number}"
            folder = name if pool.no_shared_folder else None
            nodes.append(node(name, idle=idle, free=free, pool=pool, leaving=draw(st.booleans()), folder=folder))
            if idle is None:
                ends.append(ends_in(draw(st.floats(1, 200)), f"on {name}", **{name: pool.slots}))
    waiting = draw(
        st.lists(
            st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2), st.floats(0, 100), st.booleans(), st.booleans()), max_size=5
        )
    )
    pending = [
        job(f"j{number}", blocks, slots_per_block=size, priority=priority, waits=waits, spread=spread, one_folder=one_folder)
        for number, (blocks, size, priority, waits, spread, one_folder) in enumerate(waiting)
    ]
    growing = [
        GrowingGang(job(f"g{number}", blocks, slots_per_block=size, waits=waits, spread=spread), tuple(range(blocks, 0, -1)), "runs")
        for number, (blocks, size, _, waits, spread, _) in enumerate(draw(st.permutations(waiting))[:2])
    ]
    return ScalingFacts(chosen, nodes, pending, launching, growing=growing, expected_ends=ends)


@given(any_facts())
@settings(max_examples=60, deadline=None)
def test_never_above_the_maximum_nor_below_the_minimum_and_no_busy_node_is_drained(facts: ScalingFacts) -> None:
    decided = decide(facts, NOW)
    by_id = {each.id: each for each in facts.nodes}
    for pool in facts.pools:
        launched = sum(each.count for each in decided.launches if each.pool == pool.name)
        drained = [by_id[each.node_id] for each in decided.drains if each.pool == pool.name]
        here = [each for each in facts.nodes if each.pool == pool.name]
        if launched:
            assert len(here) + facts.launching[pool.name] + launched <= pool.max_nodes
            assert not drained  # never both at once
        assert all(each.idle_since is not None and not each.leaving for each in drained)
        if drained:
            assert sum(not each.leaving for each in here) - len(drained) >= pool.min_nodes
    assert {each.job_id for each in decided.withheld} <= {
        each.request.job_id for each in (*facts.pending, *(gang.job for gang in facts.growing))
    }
    reasons = [
        *(each.reason for each in decided.launches),
        *(each.reason for each in decided.drains),
        *(each.reason for each in decided.withheld),
    ]
    assert all(reasons)


def test_a_job_keeps_the_idle_nodes_it_will_use_when_nodes_of_another_pool_are_on_their_way() -> None:
    """They were drained under a spent budget, and the job was counted on nodes that were launched for another one."""
    first, spent = replace(POOL, name="a"), replace(POOL, name="b", slots=3, max_nodes=2, budget_node_hours=5.0, spent_node_hours=6.0)
    idle = (node("b0", pool=spent), node("b1", pool=spent))
    waiting = (job("urgent", 4, priority=1), job("other", 3))
    assert look(*waiting, pools=(first, spent), nodes=idle).launches == (LaunchNodes("a", 1, "job other waits for 3 slots"),)
    assert look(*waiting, pools=(first, spent), nodes=idle, a=1).drains == ()


@given(any_facts())
@settings(max_examples=40, deadline=None)
def test_what_was_launched_a_moment_ago_is_neither_launched_again_nor_drained(facts: ScalingFacts) -> None:
    """All jobs have waited long enough: one that has not is promised room of the first look's nodes at the second only, and others need more then."""
    facts = replace(facts, patience_seconds=0.0)
    decided = decide(facts, NOW)
    launching = {**facts.launching}
    for each in decided.launches:
        launching[each.pool] += each.count
    drained = {each.node_id for each in decided.drains}
    left = [replace(each, leaving=True) if each.id in drained else each for each in facts.nodes]
    tried = {*decided.grows_for, *decided.declined}
    growing = [replace(each, retry_at=NOW + timedelta(minutes=10)) if each.job.request.job_id in tried else each for each in facts.growing]
    again = decide(replace(facts, launching=launching, nodes=left, growing=growing), NOW)
    assert again.launches == ()
    assert again.drains == ()


def test_a_lost_node_counts_for_no_minimum_and_another_one_takes_its_place() -> None:
    """The pool had its minimum in a dead machine: jobs waited for ever, and the idle node that lived was drained in its favour."""
    one = replace(POOL, min_nodes=1, max_nodes=1)
    lost = node("lost", idle=400.0, schedulable=False, lost_since=NOW - timedelta(seconds=300))
    assert [each.node_id for each in look(pools=(one,), nodes=(lost,)).drains] == ["lost"]
    assert look(pools=(one,)).launches == (LaunchNodes("work", 1, "it is to have at least 1 node"),)
    least = replace(POOL, min_nodes=1)
    assert [each.node_id for each in look(pools=(least,), nodes=(node("alive", idle=700.0), lost)).drains] == ["lost"]
    assert look(pools=(least,), nodes=(lost,)).launches == (LaunchNodes("work", 1, "it is to have at least 1 node"),)
    cut_off = replace(lost, lost_since=NOW - timedelta(seconds=60))
    assert look(pools=(least,), nodes=(cut_off,)) == ScalingDecision(), "it may be heard from again"


def test_a_pool_may_hold_what_fits_into_all_the_nodes_that_it_may_have() -> None:
    assert may_hold(POOL, job(blocks=16))
    assert not may_hold(POOL, job(blocks=17))
    assert may_hold(POOL, job(blocks=17, min_blocks=16)), "it starts with fewer"
    assert not may_hold(POOL, job(blocks=5, spread=True)), "four nodes, one block each"
    assert not may_hold(POOL, job(blocks=1, slots_per_block=5)), "a block lies on one node"
    assert not may_hold(replace(POOL, spot=True), job(safe=False))
    assert may_hold(replace(POOL, budget_node_hours=1.0, spent_node_hours=2.0), job()), "the next month has a budget of its own"
