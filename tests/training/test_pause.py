"""A run that was paused must give the numbers of one that was not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gangs import Job, RankEnd
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt


def paused_twice(job: Job, world_size: int) -> list[RankEnd]:
    generations = [job.run(world_size, pause=True), job.resume(world_size, pause=True), job.resume(world_size)]
    assert [ends[0].result.outcome for ends in generations if ends[0].result] == ["paused", "paused", "completed"]
    assert all(end.exit_code == 0 for ends in generations for end in ends)
    return [ends[0] for ends in generations]


def stitched(ends: list[RankEnd], name: str) -> dict[int, Any]:
    """One curve out of three generations; no step may be done twice."""
    curves = [end.curve(name) for end in ends]
    joined = {step: value for curve in curves for step, value in curve.items()}
    assert sum(map(len, curves)) == len(joined)
    return joined


STEPS = 60  # long enough that the second pause comes before the end


def test_one_process_continues_to_the_last_bit(make_job: MakeJob) -> None:
    straight, ends = make_job(tiny_gpt(steps=STEPS), "straight").run()[0], paused_twice(make_job(tiny_gpt(steps=STEPS)), 1)
    for name in ("loss", "gradient_norm", "learning_rate", "eval_loss"):
        assert stitched(ends, name) == straight.curve(name)


def test_two_ranks_pause_where_their_spec_says_and_go_on_to_the_last_bit(make_job: MakeJob) -> None:
    straight = make_job(tiny_gpt(2, steps=STEPS), "straight").run(2)[0]
    job = make_job(tiny_gpt(2, steps=STEPS, pause_at_steps=[7, 20]))
    ends = [job.run(2)[0], job.resume(2)[0], job.resume(2)[0]]
    assert [(end.result.outcome, end.result.step) for end in ends if end.result] == [("paused", 7), ("paused", 20), ("completed", STEPS)]
    assert stitched(ends, "loss") == straight.curve("loss")
    assert {7, 20} <= stitched(ends, "eval_loss").keys()


def test_ddp_continues_within_rounding(make_job: MakeJob) -> None:
    spec = tiny_gpt(2, steps=STEPS) | {"reproducible": False}
    straight, ends = make_job(spec, "straight").run(2)[0], paused_twice(make_job(spec), 2)
    for name in ("loss", "gradient_norm", "eval_loss"):
        curve = straight.curve(name)
        assert stitched(ends, name) == pytest.approx(curve, abs=1e-6)


def test_all_ranks_stop_at_the_same_step(make_job: MakeJob) -> None:
    ends = make_job(tiny_gpt(3, steps=500, global_batch_size=12)).run(3, pause=True)
    assert {(end.result.outcome, end.result.step) for end in ends if end.result} == {("paused", ends[0].metrics[-1].step)}


def test_a_pause_that_cannot_be_saved_fails_and_says_why(make_job: MakeJob) -> None:
    job = make_job(tiny_gpt(steps=500))
    job.checkpoints.mkdir(parents=True)
    for step in range(1, 501):
        (job.checkpoints / f"step-{step}.g1.tmp").write_text("in the way")
    (end,) = job.run(pause=True)
    assert end.exit_code == 1
    assert end.result is not None
    assert end.result.failure is not None
    assert end.result.failure.kind == "checkpoint_failed"
    assert "File exists" in end.result.failure.message
