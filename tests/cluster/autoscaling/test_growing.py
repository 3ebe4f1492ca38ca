"""What a running gang lacks, and when nodes are launched for it again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from paceline.cluster.autoscaling.facts import GrowingGang
from paceline.cluster.autoscaling.growing import ScaleUpTries, further_blocks, growing_gang, restarting_gang
from paceline.cluster.policy.elastic import JoinFailure, RunningGang, SlotAssignment
from paceline.cluster.policy.placement import Request
from paceline.training.schema.parallelism import Parallelism
from tests.cluster.policy.test_elastic import NOW, cold, gang, member

PAIRS = Parallelism(strategy="fsdp", shard=2)


def on(node: str, count: int, first: int = 0) -> tuple[SlotAssignment, ...]:
    return tuple(SlotAssignment(first + slot, node, slot) for slot in range(count))


def lacks(gang: RunningGang, **known: Any) -> GrowingGang | None:
    return growing_gang(gang, 0, NOW, survives_interruption=True, **{"folders": {}} | known)


def test_a_gang_asks_for_the_ranks_that_it_lacks_on_nodes_of_its_device() -> None:
    found = lacks(gang(member(0), member(1), target=4, most_per_node=None))
    assert found is not None
    assert (found.sizes, found.why, found.occupied) == ((2, 1), "runs with 2 of 4 ranks", frozenset())
    assert (found.job.request.requirements.device, found.job.request.slots_per_block) == ("cpu", 1)
    assert lacks(gang(member(0), member(1), target=2, most_per_node=None)) is None
    assert lacks(gang(member(0), parked=(cold(1),), target=2, most_per_node=None)) is None, "a rank is on its way"
    assert lacks(gang(member(0), member(1), target=2, most_per_node=None, spares=2)) is None, "no node for a spare"


def test_the_ranks_of_a_draining_node_are_lacking() -> None:
    assert further_blocks(gang(member(0, leaving=True), member(1), target=2, most_per_node=None)) == (1,)


def test_a_spread_gang_takes_no_second_block_of_a_node() -> None:
    found = lacks(gang(member(0), member(1), target=3))
    assert found is not None
    assert found.job.request.spread
    assert found.occupied == {"n0", "n1"}


def test_a_gang_that_saves_in_the_default_folder_takes_no_node_with_another_one() -> None:
    mine = gang(member(0), target=3, most_per_node=None, one_folder=True)
    found = lacks(mine, folders={"n0": "a", "n1": "a", "n2": "b", "n3": None})
    assert found is not None
    assert (found.job.folder, found.occupied, found.job.request.one_folder) == ("a", {"n2"}, True)
    anywhere = lacks(mine, folders={"n0": None, "n2": "b"})
    assert anywhere is not None
    assert (anywhere.job.folder, anywhere.occupied) == (None, frozenset())


def test_a_gang_that_runs_on_nodes_whose_mounts_differ_may_have_any_node() -> None:
    mine = gang(member(0), member(1), target=4, most_per_node=None, one_folder=True, directory="/data")
    found = lacks(mine, folders={"n0": "machine a", "n1": "machine b", "n2": "machine c"})
    assert found is not None
    assert (found.job.folder, found.occupied, found.job.request.one_folder) == (None, frozenset(), False)
    apart = lacks(mine, folders={"n0": "shared", "n1": "shared", "n2": "machine c"})
    assert apart is not None
    assert (apart.job.folder, apart.occupied, apart.job.request.directory) == ("shared", {"n2"}, "/data")


def test_only_sizes_that_the_plan_fits_are_asked_for() -> None:
    assert further_blocks(gang(*on("a", 2), target=6, most_per_node=None, plan=PAIRS)) == (4, 2)
    assert further_blocks(gang(*on("a", 2), target=3, most_per_node=None, plan=PAIRS)) == ()


def test_a_broken_block_is_made_whole_on_its_own_node_and_by_no_other() -> None:
    """A node that came for the rest of a block would never be used."""
    blocks: dict[str, Any] = {"most_per_node": None, "block": 4, "target": 8}
    assert further_blocks(gang(*on("a", 4), *on("b", 3, 4), **blocks)) == ()
    assert further_blocks(gang(*on("a", 4), **blocks)) == (1,)


def test_a_script_asks_for_the_blocks_with_which_it_would_start_again() -> None:
    request = Request("job", 4, 2, 0, NOW)
    script = gang(*on("a", 2), target=8, most_per_node=None, block=2, request=request, rests_until=NOW + timedelta(seconds=5))
    assert further_blocks(script) == (3, 2, 1)
    found = lacks(script, rests=True)
    assert found is not None
    assert (found.restarting, found.rests_until) == (True, NOW + timedelta(seconds=5))
    assert restarting_gang(request, survives_interruption=True).sizes == (4, 3, 2, 1)


def test_a_gang_whose_joiners_keep_failing_takes_no_node_until_it_tries_again() -> None:
    failures = tuple(JoinFailure(NOW - timedelta(seconds=60 - second), "out of memory") for second in range(6))
    found = lacks(gang(member(0), target=2, most_per_node=None, join_failures=failures))
    assert found is not None
    assert found.rests_until == failures[0].at + timedelta(seconds=1800)


def test_a_job_that_does_not_grow_is_tried_after_ten_minutes_then_twenty_and_at_once_when_it_has_grown() -> None:
    tries = ScaleUpTries()
    assert tries.retry_at("job") is None
    tries.note_try("job", 2, NOW)
    assert tries.retry_at("job") == NOW + timedelta(minutes=10)
    tries.note_sizes({"job": 2}, NOW)
    tries.note_try("job", 2, NOW)
    assert tries.retry_at("job") == NOW + timedelta(minutes=20)
    for _ in range(20):
        tries.note_try("job", 2, NOW)
    assert tries.retry_at("job") == NOW + timedelta(hours=6)
    tries.note_sizes({"job": 3}, NOW)
    assert tries.retry_at("job") is None, "it has grown"
    tries.note_try("job", 2, NOW)
    tries.note_sizes({"other": 2}, NOW)
    assert tries.retry_at("job") is None, "it lacks nothing"


def test_a_whole_gang_lacks_nothing_whatever_its_leaving_ranks() -> None:
    whole = gang(member(0), member(1), member(2, leaving=True), target=2, most_per_node=None)
    assert further_blocks(whole) == ()
    assert further_blocks(replace(whole, target=3)) == (1,)
