"""The loss scale as part of a job's state: through pauses, other worlds and faults, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.training.link import Broken
from paceline.training.optim.loss_scale import INITIAL, LossScale
from paceline.training.saving import manifest
from tests.faults import Fault, Moment, faulty_job
from tests.gangs import Job, RankEnd
from tests.parallelism.overflow import IN_THE_FIRST_LAYER, STEP, overflowing
from tests.parallelism.parity import STEPS
from tests.training.conftest import MakeJob
from tests.training.states import final_state

CURVES = ("loss", "loss_scale", "skipped_updates")
#: Added to a copy of the task that breaks where it is told: the fifth step overflows.
EXPLOSIVE = """
def explosive(spec: JobSpec) -> Task:
    made = task(spec)

    def loss(model: nn.Module, batch: Batch) -> Loss:
        value, means = made.loss(model, batch)
        here = made.train._progress
        return value * (1e9 if (here.step, here.micro_batch) == (5, 1) else 1.0), means

    return Task(made.model, made.train, loss)
"""


def curves(*leaders: RankEnd) -> dict[str, dict[int, Any]]:
    return {name: {step: value for end in leaders for step, value in end.curve(name).items()} for name in CURVES}


def explosive(folder: Path, *faults: Fault) -> dict[str, Any]:
    spec = faulty_job(folder, *faults, task="explosive", precision="fp16")
    with (folder / "faulty_task.py").open("a") as code:
        code.write(EXPLOSIVE)
    return spec


def assert_same_parameters(one: Job, other: Job) -> None:
    mine, theirs = final_state(one), final_state(other)
    assert mine.keys() == theirs.keys()
    assert all(mine[name].equal(theirs[name]) for name in mine)


@pytest.mark.parametrize("plan", [{}, {"parallelism": {"pipeline": 2, "pipeline_schedule": "zero_bubble"}, "resources": {"nodes": 2}}])
def test_an_overflow_is_reported_and_its_step_is_committed(make_job: MakeJob, plan: dict[str, Any]) -> None:
    """Of a pipeline, in the first stage alone."""
    job = make_job(IN_THE_FIRST_LAYER | plan)
    end, *_ = job.run(2 if plan else 1)
    assert end.curve("skipped_updates") == {step: float(step >= STEP) for step in range(1, STEPS + 1)}
    assert end.curve("loss_scale") == {step: INITIAL / 2 if step >= STEP else INITIAL for step in range(1, STEPS + 1)}
    assert f"step {STEP}: gradients overflowed in fp16, and the update was skipped; the loss scale is now 32768" in end.output
    saved = manifest.read(Path(job.newest_first()[0])).loss_scale
    assert saved == LossScale(INITIAL / 2, skipped_updates=1, good_steps=STEPS - STEP)


@pytest.mark.parametrize("every", [None, 1])
def test_a_save_before_the_first_update_changes_nothing(make_job: MakeJob, every: int | None) -> None:
    """The first update is skipped, and then saved: torch's own way to look at an optimizer takes a step that counts."""
    straight, other = (
        make_job(overflowing("at_once"), "straight"),
        make_job(overflowing("at_once", checkpoint={"every_steps": every}), "other"),
    )
    ends = straight.run(1), other.run(2)
    assert curves(*ends[0]) == curves(ends[1][0])
    assert ends[0][0].curve("skipped_updates")[1] == 1
    assert_same_parameters(straight, other)


def test_a_paused_job_goes_on_with_its_scale_on_other_ranks(make_job: MakeJob) -> None:
    spec = overflowing("at_once", checkpoint={"every_steps": 1, "keep_last": 100})
    straight, paused = make_job(spec, "straight"), make_job(spec | {"training": spec["training"] | {"pause_at_steps": [2, 5]}}, "paused")
    ends = [paused.run(3)[0], paused.resume(2)[0], paused.resume(1)[0]]
    assert [end.result.outcome for end in ends if end.result] == ["paused", "paused", "completed"]
    assert curves(straight.run(1)[0]) == curves(*ends)
    assert_same_parameters(straight, paused)


@pytest.mark.parametrize(("step", "moment"), [(5, "exchange"), (5, "news"), (6, "loss"), (7, "update")])
def test_survivors_carry_the_scale_on(make_job: MakeJob, tmp_path: Path, step: int, moment: Moment) -> None:
    """One of two dies in the step that overflows, or soon afterwards."""
    (undisturbed,) = make_job(explosive(tmp_path / "well"), "well").run(1)
    gang = make_job(explosive(tmp_path / "code", Fault(rank=1, step=step, moment=moment)), "job").start(2)
    gang.agent.until(1, 0, Broken)
    gang.close_up(0)
    survivor, dead = gang.wait()
    assert (survivor.exit_code, dead.exit_code) == (0, -9), gang.left(2, 0).output
    assert curves(survivor, gang.left(2, 0)) == curves(undisturbed)
    assert undisturbed.curve("skipped_updates")[5] > undisturbed.curve("skipped_updates")[4]


def test_what_can_only_overflow_ends_the_job_with_the_way_out(make_job: MakeJob, tmp_path: Path) -> None:
    spec = explosive(tmp_path / "code")
    task = tmp_path / "code" / "faulty_task.py"
    task.write_text(task.read_text().replace("== (5, 1)", "!= (0, 0)").replace("1e9", "float('nan')"))
    spec["training"]["steps"] = 40
    (end,) = make_job(spec).run(1)
    assert end.result is not None
    assert end.result.failure is not None
    assert (end.result.failure.kind, end.result.step) == ("invalid_input", 30)
    assert "use precision bf16 or fp32" in end.result.failure.message
