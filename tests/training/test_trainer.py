from __future__ import annotations

import re

import pytest
import torch

from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport, make_task
from paceline.training.task import Dataset
from paceline.training.trainer import StepActions, due
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt


def report(step: int, *, pause: bool = False, checkpoint: bool = False) -> StepReport:
    return StepReport(step, 1.0, 1.0, 0.1, 0, 8, 0.1, {}, pause=pause, checkpoint=checkpoint, leave=False, time=0.0)


NOTHING = StepActions(evaluate=False, save=False, must_save=False, stop=False)


@pytest.mark.parametrize(
    ("report_", "expected"),
    [
        (report(1), NOTHING),
        (report(5), StepActions(evaluate=False, save=True, must_save=False, stop=False)),
        (report(4), StepActions(evaluate=True, save=False, must_save=False, stop=False)),
        (report(3, checkpoint=True), StepActions(evaluate=False, save=True, must_save=False, stop=False)),
        (report(3, pause=True), StepActions(evaluate=False, save=True, must_save=True, stop=True)),
        (report(21), StepActions(evaluate=True, save=True, must_save=True, stop=True)),
    ],
)
def test_what_follows_a_step(report_: StepReport, expected: StepActions) -> None:
    spec = JobSpec.model_validate(tiny_gpt(steps=21, eval_every_steps=4) | {"checkpoint": {"every_steps": 5}})
    assert due(spec, report_, total_steps=21) == expected


def test_a_step_at_which_its_spec_pauses_it_is_evaluated_and_saved() -> None:
    spec = JobSpec.model_validate(tiny_gpt(steps=21, eval_every_steps=4, pause_at_steps=[3, 9]))
    assert due(spec, report(9), total_steps=21) == StepActions(evaluate=True, save=True, must_save=True, stop=True)
    assert due(spec, report(10), total_steps=21) == NOTHING


def test_without_intervals_only_the_end_counts() -> None:
    spec = JobSpec.model_validate(tiny_gpt(steps=9, eval_every_steps=None))
    assert due(spec, report(6), total_steps=9) == NOTHING
    assert due(spec, report(9), total_steps=9) == StepActions(evaluate=False, save=True, must_save=True, stop=True)


def test_a_sample_is_logged_at_the_end(make_job: MakeJob) -> None:
    (end,) = make_job(tiny_gpt(generate_tokens=20)).run()
    (sample,) = end.events_of("sample")
    assert sample["text"].startswith("def ")
    assert sample["step"] == 12
    assert sample["text"].splitlines()[0] in end.output


def test_progress_can_be_read_by_people(make_job: MakeJob) -> None:
    (end,) = make_job(tiny_gpt()).run()
    assert re.search(r"^step 1/12 loss \d\.\d+ lr 3\.33e-03 grad norm [\d.]+ [\d,]+ tokens/s$", end.output, re.M)
    assert re.search(r"^step 12/12 eval_loss \d\.\d+$", end.output, re.M)


def test_each_step_tells_how_many_samples_an_epoch_has(make_job: MakeJob) -> None:
    job = make_job(tiny_gpt(steps=3))
    (end,) = job.run()
    train = make_task(JobSpec.model_validate(job.spec), job.folder).train
    assert isinstance(train, Dataset)
    assert end.curve("epoch_samples") == dict.fromkeys((1, 2, 3), float(len(train)))


def test_digits_are_learnt(make_job: MakeJob) -> None:
    spec = {
        "name": "digits",
        "model": {"kind": "mlp", "hidden": [64]},
        "data": {"kind": "digits"},
        "optimizer": {"kind": "adamw", "lr": 3e-3},
        "training": {"epochs": 8, "global_batch_size": 64, "eval_samples": None, "eval_every_steps": None},
        "checkpoint": {"every_steps": None},
    }
    (end,) = make_job(spec | {"training": spec["training"] | {"eval_every_steps": 1000}}).run()  # type: ignore[operator]
    assert end.curve("eval_accuracy").popitem()[1] > 0.9
    assert len(end.curve("loss")) == -(-8 * 1438 // 64)
    assert all(torch.isfinite(torch.tensor(list(end.curve("loss").values()))))


def test_a_loss_that_is_no_number_is_recorded_as_such(make_job: MakeJob) -> None:
    spec = tiny_gpt(gradient_clip_norm=None) | {"optimizer": {"kind": "sgd", "lr": 1e30, "momentum": 0.0}}
    (end,) = make_job(spec).run()
    assert end.exit_code == 0
    assert end.curve("loss")[12] == "NaN"
    assert end.events_of("evaluated")[-1]["metrics"] == {"eval_loss": "NaN"}
