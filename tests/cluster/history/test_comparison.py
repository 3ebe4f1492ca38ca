"""The same run or not, in words to quote."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paceline.cluster.history.comparison import (
    ABSENT,
    ComparedRun,
    MetricTallies,
    Parameters,
    bits,
    bound,
    circumstances,
    relative_difference,
    sentence,
    spec_differences,
    verdict,
)
from paceline.cluster.states import JobState

DONE = ComparedRun(JobState.COMPLETED, 500, (2,))
HURT = ComparedRun(JobState.COMPLETED, 500, (3, 2), recoveries=4)


def losses(one: dict[int, float], other: dict[int, float]) -> MetricTallies:
    tallies = MetricTallies()
    for step in sorted(one.keys() & other.keys()):
        tallies.add(step, {"loss": one[step]}, {"loss": other[step]})
    for step in sorted(one.keys() ^ other.keys()):
        tallies.miss(step, {"loss": (one | other)[step]})
    return tallies


def curve(length: int = 500, **changed: float) -> dict[int, float]:
    """`s7=...`: the loss at step 7."""
    return {step: math.exp(-step / 100) for step in range(1, length + 1)} | {int(name[1:]): value for name, value in changed.items()}


def test_the_same_to_the_last_bit() -> None:
    tallies = losses(curve(), curve())
    assert verdict(DONE, HURT, tallies, None) == "same"
    same = "same run, to the last bit: 500 of 500 steps equal, on 2 and 3 ranks, through 4 recoveries"
    assert sentence(DONE, HURT, tallies, None) == same
    with_parameters = sentence(DONE, HURT, tallies, Parameters(500, equal=True))
    assert "500 of 500 steps equal, and the parameters at step 500, on 2" in with_parameters


def test_the_same_so_far_while_one_of_them_runs() -> None:
    running = replace(HURT, state=JobState.RUNNING, last_step=137)
    tallies = losses(curve(137), curve(137))
    assert verdict(DONE, running, tallies, None) == "same_so_far"
    assert sentence(DONE, running, tallies, None).startswith("same run so far, to the last bit: 137 of 137 steps equal")


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_a_run_that_has_ended_earlier_is_not_the_same(state: JobState) -> None:
    shorter = replace(DONE, state=state, last_step=137)
    tallies = losses(curve(137), curve(137))
    for runs in ((DONE, shorter), (shorter, DONE)):
        assert verdict(*runs, tallies, None) == "diverged"
        assert sentence(*runs, tallies, None) == "equal until step 137, where one of them ended; the other ended at step 500, on 2 ranks"
    assert sentence(DONE, shorter, tallies, Parameters(100, equal=False)).endswith("but the parameters at step 100 differ, on 2 ranks")


def test_one_bit_makes_another_run() -> None:
    other = curve(s137=math.nextafter(curve()[137], 1.0))
    tallies = losses(curve(), other)
    assert verdict(DONE, DONE, tallies, None) == "close"
    told = sentence(DONE, DONE, tallies, None)
    assert told.startswith("equal to 1e-15 over 500 steps, not to the last bit; equal until step 136, then differs: loss ")
    assert f"{other[137]!r} at step 137" in told


def test_runs_that_differ_in_the_sign_of_a_zero_alone_are_close() -> None:
    tallies = losses(curve(s137=0.0), curve(s137=-0.0))
    assert verdict(DONE, DONE, tallies, None) == "close"
    told = "equal but for the sign of zeros over 500 steps, not to the last bit; equal until step 136, then differs: loss 0.0 and -0.0 at step 137"
    assert sentence(DONE, DONE, tallies, None) == f"{told}, on 2 ranks"


def test_a_run_that_leaves_the_other_says_where() -> None:
    tallies = losses(curve(), curve(s137=2.0, s138=3.0))
    assert verdict(DONE, DONE, tallies, None) == "diverged"
    assert sentence(DONE, DONE, tallies, None).startswith("equal until step 136, then differs: loss 0.254")
    assert tallies.equal_steps == 498


def test_a_run_that_differs_in_its_first_step_differs_from_the_start() -> None:
    """Whatever is equal by chance later."""
    tallies = losses(curve(), curve(s1=2.0))
    assert tallies.equal_steps
    assert sentence(DONE, DONE, tallies, None).startswith("differs from the start: loss ")


def test_runs_that_never_agree() -> None:
    tallies = losses(curve(3), {step: loss + 1 for step, loss in curve(3).items()})
    assert verdict(DONE, DONE, tallies, None) == "different"
    assert sentence(DONE, DONE, tallies, None).startswith("differs from the start: loss ")


def test_other_parameters_behind_the_same_losses() -> None:
    tallies = losses(curve(), curve())
    assert verdict(DONE, DONE, tallies, Parameters(500, equal=False)) == "diverged"
    assert sentence(DONE, DONE, tallies, Parameters(500, equal=False)).startswith(
        "500 of 500 steps equal, but the parameters at step 500 differ"
    )


def test_a_step_that_only_one_of_them_tells_of_is_no_proof() -> None:
    tallies = losses({**curve(), 137: 0.1} | {}, {step: loss for step, loss in curve().items() if step != 137})
    assert verdict(DONE, DONE, tallies, None) == "diverged"
    assert "499 of 499 steps equal, but 1 step is known of one of them only" in sentence(DONE, DONE, tallies, None)


def test_nothing_in_common() -> None:
    assert verdict(DONE, DONE, MetricTallies(), None) == "nothing_to_compare"
    assert sentence(DONE, DONE, MetricTallies(), None) == "nothing to compare: no step is known of both"


def test_points_that_are_removed_are_told_with_what_is_left() -> None:
    removed = replace(DONE, points_removed_to=1200)
    until = "steps cannot be compared: the raw points of one of them up to step 1,200 have been removed"
    assert sentence(DONE, removed, MetricTallies(), None) == until
    assert sentence(removed, DONE, MetricTallies(), Parameters(500, equal=True)) == f"{until}; the parameters at step 500 are equal"
    assert sentence(removed, removed, MetricTallies(), Parameters(500, equal=False)) == f"{until}; the parameters at step 500 differ"


def test_bits_tell_zeros_apart_and_let_nan_be_nan() -> None:
    assert bits(0.0) != bits(-0.0)
    assert bits(math.nan) == bits(float("NaN"))
    assert relative_difference(math.nan, math.nan) == 0.0
    assert relative_difference(math.nan, 1.0) == math.inf
    assert relative_difference(0.0, -0.0) == 0.0
    assert (bound(3.2e-6), bound(1e-6)) == ("1e-5", "1e-6")


def test_what_the_runs_went_through() -> None:
    assert circumstances(ComparedRun(JobState.COMPLETED, 5, (1,)), ComparedRun(JobState.COMPLETED, 5, (1,))) == ", on 1 rank"
    busy = ComparedRun(JobState.COMPLETED, 5, (3, 5, 2), recoveries=1, resizes=2, pauses=1)
    assert circumstances(DONE, busy) == ", on 2, 3 and 5 ranks, through 1 recovery, 2 resizes and 1 pause"


def test_what_may_change_the_numbers_comes_first() -> None:
    one = {"name": "a", "training": {"seed": 1, "eval_every_steps": 10}, "resources": {"nodes": 2}}
    other = {"name": "b", "training": {"seed": 2, "eval_every_steps": 20}, "resources": {"nodes": 3}, "precision": "bf16"}
    found = spec_differences(one, other, reproducible=True)
    assert [(each.path, each.changes_numbers) for each in found] == [
        ("precision", True),
        ("training.seed", True),
        ("name", False),
        ("resources.nodes", False),
        ("training.eval_every_steps", False),
    ]
    assert found[0].values == (ABSENT, "bf16")
    parts = [{"parallelism": {"strategy": "fsdp", "shard": shard, "replicate": replicas}} for shard, replicas in ((2, 4), (4, 2))]
    assert [(each.path, each.changes_numbers) for each in spec_differences(*parts, reproducible=True)] == [
        ("parallelism.shard", True),  # how one replica is made up
        ("parallelism.replicate", False),
    ]
    rounded = spec_differences(one, other, reproducible=False)
    assert [each.path for each in rounded if each.changes_numbers] == ["precision", "resources.nodes", "training.seed"]
