"""A bad loss in whole jobs: what each policy makes of it, the same on any number of ranks and under every strategy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from paceline.training.link import Broken
from paceline.training.saving import manifest
from tests.faults import Fault, Moment, faulty_job
from tests.gangs import Job, RankEnd
from tests.parallelism.bad_losses import MICRO_BATCH, NAN_STEP, SPIKE_STEP, STEPS, bad_job, bad_samples
from tests.training.conftest import MakeJob
from tests.training.states import final_state

FSDP = {"parallelism": {"strategy": "fsdp"}}
REPRODUCIBLE_FSDP = {"parallelism": {"strategy": "fsdp", "shard": 2}, "reproducible": True}
PIPELINE = {"parallelism": {"pipeline": 2}}


def on_nan(policy: str, entrypoint: str = "nan_once", **changes: Any) -> dict[str, Any]:
    return bad_job(entrypoint, fault_tolerance={"on_nan": policy}, **changes)


def assert_same_parameters(one: Job, other: Job) -> None:
    mine, theirs = final_state(one), final_state(other)
    assert mine.keys() == theirs.keys()
    assert all(mine[name].equal(theirs[name]) for name in mine)


def failure_of(end: RankEnd) -> tuple[str, str]:
    assert end.result is not None
    assert end.result.failure is not None
    return end.result.failure.kind, end.result.failure.message


def told(end: RankEnd) -> list[tuple[int, str, str]]:
    return [(data["step"], data["what"], data["act"]) for data in end.events_of("bad_loss")]


def test_warn_tells_the_step_and_its_samples_once(make_job: MakeJob) -> None:
    end, *others = make_job(on_nan("warn")).run(2)
    (data,) = end.events_of("bad_loss")
    assert (data["step"], data["what"], data["act"], data["loss"]) == (NAN_STEP, "not_finite", "warn", "NaN")
    assert (data["micro_batches"], data["sample_ids"], data["samples"]) == ([MICRO_BATCH], bad_samples(NAN_STEP), 2)
    assert all(math.isnan(float(end.curve("loss")[step])) for step in range(NAN_STEP, 11))
    assert not others[0].events_of("bad_loss")
    assert end.exit_code == 0


@pytest.mark.parametrize("plan", [{}, {"checkpoint": {"every_steps": 1, "keep_last": 100}}], ids=["alone", "saved"])
@pytest.mark.parametrize("entrypoint", ["nan_once", "nan_at_once"])
def test_a_skipped_update_is_the_same_to_the_last_bit_on_any_number_of_ranks(
    make_job: MakeJob, plan: dict[str, Any], entrypoint: str
) -> None:
    """Also where it is the first one: torch's own way to look at an optimizer takes a step that counts."""
    step = NAN_STEP if entrypoint == "nan_once" else 1
    one, two = make_job(on_nan("skip_update", entrypoint), "one"), make_job(on_nan("skip_update", entrypoint, **plan), "two")
    (alone,), (first, _) = one.run(1), two.run(2)
    assert alone.exit_code == first.exit_code == 0
    assert told(alone) == told(first) == [(step, "not_finite", "skip_update")]
    assert [number for number, loss in first.curve("loss").items() if not math.isfinite(float(loss))] == [step]
    losses = [{number: str(loss) for number, loss in end.curve("loss").items()} for end in (alone, first)]
    assert losses[0] == losses[1]
    assert first.curve("skipped_updates")[10] == 1
    assert_same_parameters(one, two)
    assert all(values.isfinite().all() for values in final_state(two).values())


def test_a_skipped_step_changes_nothing(make_job: MakeJob) -> None:
    job = make_job(on_nan("skip_update", checkpoint={"every_steps": 1, "keep_last": 100}))
    job.run(2)
    before, after = (manifest.read(path) for path in sorted(job.checkpoints.glob("step-[67].g1")))
    assert (before.step, after.step) == (NAN_STEP - 1, NAN_STEP)
    assert before.parameters_sha256 == after.parameters_sha256
    assert (before.loss_guard.skipped_updates, after.loss_guard.skipped_updates) == (0, 1)


@pytest.mark.parametrize("plan", [FSDP, REPRODUCIBLE_FSDP, PIPELINE], ids=["fsdp", "reproducible-fsdp", "pipeline"])
def test_every_strategy_skips(make_job: MakeJob, plan: dict[str, Any]) -> None:
    job = make_job(on_nan("skip_update", "nan_in_layers", resources={"nodes": 2}, **plan))
    first, _ = job.run(2)
    assert first.exit_code == 0, first.output
    assert told(first) == [(NAN_STEP, "not_finite", "skip_update")]
    assert [step for step, loss in first.curve("loss").items() if not math.isfinite(float(loss))] == [NAN_STEP]
    assert all(values.isfinite().all() for values in final_state(job).values())


def test_after_twenty_skips_in_a_row_it_is_not_the_batch(make_job: MakeJob) -> None:
    spec = on_nan("skip_update", "nan_always")
    spec["training"]["steps"] = STEPS
    (end,) = make_job(spec).run(1)
    kind, message = failure_of(end)
    assert kind == "loss_not_finite"
    assert message.startswith(f"the loss of step {NAN_STEP + 20} is NaN: the job is stopped before the update after 20 skipped updates")


@pytest.mark.parametrize("plan", [{}, FSDP], ids=["ddp", "fsdp"])
def test_stop_ends_every_rank_before_the_update_and_keeps_the_state_before_it(make_job: MakeJob, plan: dict[str, Any]) -> None:
    job = make_job(on_nan("stop", resources={"nodes": 2}, **plan))
    ends = job.run(2)
    assert {failure_of(end)[0] for end in ends} == {"loss_not_finite"}
    assert "look at the samples of the step" in failure_of(ends[0])[1]
    assert told(ends[0]) == [(NAN_STEP, "not_finite", "stop")]
    newest = manifest.read(Path(job.newest_first()[0]))
    assert newest.step == NAN_STEP - 1
    assert math.isfinite(float(newest.metrics["loss"]))
    assert all(values.isfinite().all() for values in final_state(job).values())


def test_a_job_that_goes_back_leaves_the_bad_step_out_and_ends_like_one_that_skips(make_job: MakeJob) -> None:
    """Also after a later restart from the same checkpoint, which is older than the bad step."""
    back, skipping = make_job(on_nan("roll_back"), "back"), make_job(on_nan("skip_update"), "skipping")
    assert {failure_of(end)[0] for end in back.run(2)} == {"rolled_back"}
    assert Path(back.newest_first()[0]).name == "step-5.g1"
    for ranks in (2, 1):
        first, *_ = back.run(ranks, restore_from=(str(back.checkpoints / "step-5.g1"),), restore_required=True)
        assert first.exit_code == 0, first.output
        assert told(first) == [(NAN_STEP, "not_finite", "skip_update")]
        assert first.events_of("bad_loss")[0]["again"]
    skipping.run(1)
    assert_same_parameters(back, skipping)


@pytest.mark.parametrize("policy", ["warn", "skip_update"])
def test_a_spike_is_seen_at_the_same_step_through_a_pause(make_job: MakeJob, policy: str) -> None:
    """What the losses were is a part of the checkpoint."""
    spec = bad_job("spike_once", fault_tolerance={"on_spike": policy}, checkpoint={"every_steps": SPIKE_STEP - 4, "keep_last": 100})
    spec["training"]["steps"] = STEPS
    straight, resumed = make_job(spec, "straight"), make_job(spec, "resumed")
    (alone,) = straight.run(1)
    assert told(alone) == [(SPIKE_STEP, "spike", policy)]
    assert alone.events_of("bad_loss")[0]["sample_ids"] == bad_samples(SPIKE_STEP)
    (ended,) = resumed.run(1)
    assert ended.exit_code == 0
    first, _ = resumed.run(2, restore_from=(str(resumed.checkpoints / f"step-{SPIKE_STEP - 4}.g1"),), restore_required=True)
    assert told(first) == [(SPIKE_STEP, "spike", policy)]
    assert_same_parameters(straight, resumed)


#: Added to a copy of the task that breaks where it is told: the loss of the fifth step is NaN.
POISONED = """
def poisoned(spec: JobSpec) -> Task:
    made = task(spec)

    def loss(model: nn.Module, batch: Batch) -> Loss:
        value, means = made.loss(model, batch)
        here = made.train._progress
        return value * (float("nan") if (here.step, here.micro_batch) == (5, 1) else 1.0), means

    return Task(made.model, made.train, loss)
"""


def poisoned(folder: Path, *faults: Fault) -> dict[str, Any]:
    spec = faulty_job(folder, *faults, task="poisoned", fault_tolerance={"on_nan": "skip_update"})
    with (folder / "faulty_task.py").open("a") as code:
        code.write(POISONED)
    return spec


@pytest.mark.parametrize(("step", "moment"), [(5, "news"), (6, "loss")])
def test_survivors_know_what_was_skipped(make_job: MakeJob, tmp_path: Path, step: int, moment: Moment) -> None:
    """One of two dies in the step that is skipped, or soon afterwards."""
    well = make_job(poisoned(tmp_path / "well"), "well")
    (undisturbed,) = well.run(1)
    job = make_job(poisoned(tmp_path / "code", Fault(rank=1, step=step, moment=moment)), "job")
    gang = job.start(2)
    gang.agent.until(1, 0, Broken)
    gang.close_up(0)
    survivor, dead = gang.wait()
    assert (survivor.exit_code, dead.exit_code) == (0, -9), gang.left(2, 0).output
    assert gang.left(2, 0).curve("skipped_updates")[12] == undisturbed.curve("skipped_updates")[12] == 1
    ends = [manifest.read(Path(each.newest_first()[0])) for each in (well, job)]
    assert ends[0].parameters_sha256 == ends[1].parameters_sha256
    assert ends[0].loss_guard == ends[1].loss_guard
