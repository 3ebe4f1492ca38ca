"""Jobs that no node is launched for: they get slots sooner without, or could not use it since it shares no folder with the others."""

from __future__ import annotations

from dataclasses import replace

from paceline.cluster.autoscaling.decide import decide, may_hold
from paceline.cluster.autoscaling.decisions import LaunchNodes, ScalingDecision
from paceline.cluster.autoscaling.facts import ScalingFacts
from paceline.cluster.policy.mounts import NodeMounts
from tests.cluster.autoscaling.test_decide import NOW, POOL, ends_in, gang, grow, job, look, node


def test_nothing_is_launched_for_a_job_that_gets_slots_of_a_running_job_before_a_node_would_be_ready() -> None:
    """A job whose slots were free in half a minute got a node that took two."""
    busy = (node("n1", idle=None), node("n2", idle=None))
    decided = look(job(), nodes=busy, ends=(ends_in(31, n1=4),))
    assert decided.launches == ()
    told = "slots for it are expected by 12:00:40 UTC, when job x ends, and a new node of work takes 60 s"
    assert [(each.reason, dict(each.pools)) for each in decided.withheld] == [(told, {"work": told})]
    assert look(job(), nodes=busy, ends=(ends_in(61, n1=4),)).launches, "a node is ready sooner"
    assert look(job(), nodes=busy, ends=(ends_in(31, n1=3),)).launches, "it is not enough"
    assert look(job(), nodes=busy).launches, "nothing is known"
    assert look(job(blocks=2, slots_per_block=4), nodes=busy, ends=(ends_in(31, n1=4), ends_in(40, "y", n2=4))).launches == ()
    assert look(job(blocks=8, min_blocks=4), nodes=busy, ends=(ends_in(31, n1=4),)).launches, (
        "it starts sooner, and with less than it asks for"
    )
    slow = replace(POOL, name="slow", cost=0.1, launch_seconds=300.0)
    assert look(job(), pools=(POOL, slow), nodes=busy, ends=(ends_in(100, n1=4),)).launches == (), "not of the dearer pool instead"


def test_slots_that_an_earlier_job_will_get_are_none_for_a_later_one() -> None:
    busy = (node("n1", idle=None), node("n2", idle=None, taints=frozenset({"new"})))
    decided = look(job("first", waits=90), job("second"), nodes=busy, ends=(ends_in(31, n1=4), ends_in(31, "y", n2=4)))
    assert decided.launches == (LaunchNodes("work", 1, "job second waits for 4 slots"),)
    assert [each.job_id for each in decided.withheld] == ["first"]
    both = look(job("first", waits=90), job("second"), nodes=busy, ends=(ends_in(31, n1=4),), work=1)
    assert both.launches == (), "the node under way is for one of them, whichever starts first"
    assert [(each.job_id, each.reason) for each in both.withheld] == [
        ("second", "slots for it are expected by 12:01:00 UTC, on a node that is under way, and a new node of work takes 60 s")
    ]


def test_a_node_of_no_pool_that_becomes_free_is_room_too() -> None:
    by_hand = replace(node("n1", idle=None), pool=None)
    assert look(job(), nodes=(by_hand,), ends=(ends_in(31, n1=4),)).launches == ()
    assert look(job(), nodes=(replace(by_hand, schedulable=False),), ends=(ends_in(31, n1=4),)).launches


def test_nothing_is_launched_for_ranks_that_get_slots_of_another_job_first() -> None:
    facts = ScalingFacts((POOL,), (node("n1", idle=None),), (), {}, growing=(gang(),), expected_ends=(ends_in(31, n1=2),))
    decided = decide(facts, NOW)
    assert (decided.launches, [each.job_id for each in decided.withheld]) == ((), ["r"])
    assert decide(replace(facts, pending=(job(blocks=2),)), NOW).grows_for == ("r",), "a job that waits gets them"


def test_a_job_that_saves_in_the_default_folder_gets_no_node_that_cannot_share_it() -> None:
    """Its pool launched a node, the job was placed on none, the node was drained, and launched again, on and on."""
    apart = replace(POOL, no_shared_folder="each of its nodes has its own folder")
    two = job(blocks=2, slots_per_block=4, one_folder=True)
    (withheld,) = look(two, pools=(apart,)).withheld
    assert withheld.pools == {"work": "each of its nodes has its own folder"}
    assert look(two, pools=(apart,)).launches == ()
    assert not may_hold(apart, two)
    assert look(two).launches[0].count == 2, "the nodes may see one folder"
    assert look(replace(two, request=replace(two.request, one_folder=False)), pools=(apart,)).launches[0].count == 2
    idle = tuple(node(name, idle=400, pool=apart, folder=name) for name in ("n1", "n2"))
    assert [each.node_id for each in look(two, pools=(apart,), nodes=idle).drains] == ["n1", "n2"]
    shared = tuple(replace(each, folder="one") for each in idle)
    assert look(job(blocks=8, one_folder=True), nodes=shared) == ScalingDecision(), "it is about to start there"


def test_a_job_that_fits_on_one_node_gets_a_node_of_its_own_where_nodes_share_no_folder() -> None:
    """Free slots of two nodes passed for room: they have two folders."""
    apart = replace(POOL, no_shared_folder="each of its nodes has its own folder")
    half_free = tuple(node(name, idle=None, free=2, pool=apart, folder=name) for name in ("n1", "n2"))
    four = job(blocks=4, one_folder=True)
    assert look(four, pools=(apart,), nodes=half_free).launches == (LaunchNodes("work", 1, "job a waits for 4 slots"),)
    assert look(four, pools=(apart,), nodes=half_free, work=1).launches == ()
    assert look(job(blocks=8, min_blocks=4, one_folder=True), pools=(apart,)).launches[0].count == 1, "as much as one node holds"
    assert look(four, pools=(apart,), nodes=half_free, ends=(ends_in(31, n1=2),)).launches == ()


def test_a_running_job_gets_no_node_that_does_not_see_its_folder() -> None:
    apart = replace(POOL, no_shared_folder="each of its nodes has its own folder")
    saving = gang()
    saving = replace(saving, job=replace(saving.job, folder="n1"), occupied=frozenset({"n2"}))
    decided = grow(saving, pool=apart, nodes=(node("n2", idle=400, pool=apart, folder="n2"),))
    assert (decided.launches, decided.withheld[0].pools) == ((), {"work": "each of its nodes has its own folder"})
    assert [each.node_id for each in decided.drains] == ["n2"]
    assert grow(saving).launches


def test_a_job_gets_no_nodes_that_have_the_folder_which_it_names_on_disks_of_their_own() -> None:
    apart = replace(POOL, mounts=NodeMounts("", ("/data",)))
    two = job(blocks=2, slots_per_block=4, one_folder=True, directory="/scratch/ckpt")
    (withheld,) = look(two, pools=(apart,)).withheld
    assert withheld.pools["work"].startswith("it saves in /scratch/ckpt, and each of work's nodes has that folder on disks of its own")
    assert not may_hold(apart, two)
    for known in (
        replace(two, request=replace(two.request, directory="/data/ckpt")),
        replace(two, request=replace(two.request, one_folder=False)),
    ):
        assert look(known, pools=(apart,)).launches[0].count == 2
    assert look(two).launches[0].count == 2, "its mounts are not known"
    half_free = tuple(replace(node(name, idle=None, free=2, pool=apart), mounts=NodeMounts(name)) for name in ("n1", "n2"))
    four = job(blocks=4, one_folder=True, directory="/scratch/ckpt")
    assert look(four, pools=(apart,), nodes=half_free).launches == (LaunchNodes("work", 1, "job a waits for 4 slots"),)
