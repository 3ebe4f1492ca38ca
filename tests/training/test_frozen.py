"""Frozen parameters stay as they are, to the bit, and everything else trains as it would without them; with an optimizer of one's own too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.training.modes import frozen_in_evaluation
from paceline.training.optim.optimizers import set_learning_rates
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from tests.gangs import Job
from tests.training.conftest import MakeJob
from tests.training.states import final_state

SOURCE = """
import torch
from torch.nn import functional as F
from paceline.training.task import Task

class Points:
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        self.inputs, self.labels = torch.randn(96, 6, generator=draw), torch.randint(0, 3, (96,), generator=draw)

    def __len__(self):
        return 96

    def batch(self, indices, generator):
        return self.inputs[indices], self.labels[indices]

def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1]), {}

def build():
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3))
    model[0].weight.requires_grad_(False)
    model[3].bias.requires_grad_(False)
    return model

def frozen(spec):
    return Task(build(), Points(), loss, evaluation=Points())

def two_rates(spec):
    make = lambda model: torch.optim.SGD(
        [{"params": [model[0].bias], "lr": 0.5}, {"params": model[3].parameters(), "lr": 0.05}, {"params": model[1].parameters()}],
        lr=0.2, momentum=0.9)
    return Task(build(), Points(), loss, optimizer=make)

def forgotten(spec):
    model = build()
    return Task(model.requires_grad_(), Points(), loss, optimizer=lambda model: torch.optim.SGD(model[3].parameters(), lr=0.05))

def at_rest(spec):
    make = lambda model: torch.optim.SGD([{"params": model[3].parameters(), "lr": 0.05}, {"params": model[:3].parameters(), "lr": 0.0}])
    return Task(build().requires_grad_(), Points(), loss, optimizer=make)

def backbone(spec):
    model = build()
    model[:3].requires_grad_(False).eval()
    return Task(model, Points(), loss, evaluation=Points())
"""
FROZEN = {"0.weight", "3.bias"}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr("sys.path", list(sys.path))  # the entrypoint's folder goes first
    (tmp_path / "frozen_task.py").write_text(SOURCE)
    return {
        "name": "frozen",
        "entrypoint": "frozen_task:frozen",
        "environment": {"working_directory": str(tmp_path)},
        "optimizer": {"kind": "adamw", "lr": 1e-2},
        "schedule": {"kind": "constant"},
        "training": {"steps": 8, "global_batch_size": 12, "micro_batch_size": 5, "eval_every_steps": 4},
        "checkpoint": {"every_steps": 4},
        "fault_tolerance": {"recovery": "restart"},
    }


def initial(spec: dict[str, Any], folder: Path) -> dict[str, torch.Tensor]:
    return dict(new_state(JobSpec.model_validate(spec), torch.device("cpu"), folder).task.model.state_dict())


def assert_trained(job: Job, before: dict[str, torch.Tensor]) -> None:
    for name, tensor in final_state(job).items():
        assert torch.equal(tensor, before[name]) == (name in FROZEN), name


@pytest.mark.parametrize("reproducible", [True, False])
def test_frozen_parameters_stay_and_worlds_agree(make_job: MakeJob, tmp_path: Path, spec: dict[str, Any], reproducible: bool) -> None:
    spec["reproducible"] = reproducible
    alone, together = make_job(spec, "alone"), make_job(spec, "together")
    first, second = alone.run(1)[0], together.run(2)[0]
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert_trained(alone, initial(spec, tmp_path))
    assert_trained(together, initial(spec, tmp_path))
    if reproducible:
        assert second.curve("loss") == first.curve("loss")
        assert second.curve("gradient_norm") == first.curve("gradient_norm")


def test_frozen_parameters_of_the_fast_mode_agree_without_batch_norm(make_job: MakeJob, spec: dict[str, Any], tmp_path: Path) -> None:
    """Running statistics of the fast mode are each rank's own until they are averaged; losses in training do not read them."""
    spec["reproducible"] = False
    curves = [make_job(spec, f"world{size}").run(size)[0].curve("loss") for size in (1, 3)]
    assert curves[1] == pytest.approx(curves[0], abs=1e-6)


def test_a_checkpoint_with_frozen_parameters_is_resumed_to_the_bit(make_job: MakeJob, spec: dict[str, Any]) -> None:
    job = make_job(spec)
    straight = job.run(2)[0]
    (resumed,) = job.run(1, restore_from=(job.newest_first()[1],), restore_required=True)
    assert resumed.exit_code == 0, resumed.output
    assert resumed.curve("loss") == {step: loss for step, loss in straight.curve("loss").items() if step > 4}


def test_an_optimizer_of_ones_own_keeps_its_rates_which_the_schedule_scales(
    make_job: MakeJob, spec: dict[str, Any], tmp_path: Path
) -> None:
    own = spec | {"entrypoint": "frozen_task:two_rates", "schedule": {"kind": "cosine", "warmup_steps": 2, "min_ratio": 0.5}}
    job = make_job(own)
    straight = job.run(2)[0]
    assert straight.exit_code == 0, straight.output
    rates = straight.curve("learning_rate")
    assert (rates[1], rates[2], rates[8]) == (0.25, 0.5, pytest.approx(0.25))
    assert_trained(job, initial(own, tmp_path))
    (resumed,) = job.run(1, restore_from=(job.newest_first()[1],), restore_required=True)
    assert resumed.curve("loss") == {step: loss for step, loss in straight.curve("loss").items() if step > 4}


@pytest.mark.parametrize("reproducible", [True, False])
@pytest.mark.parametrize("ranks", [1, 2])
def test_trainable_parameters_that_the_optimizer_does_not_hold_collect_no_gradients(
    make_job: MakeJob, spec: dict[str, Any], reproducible: bool, ranks: int
) -> None:
    spec["reproducible"] = reproducible
    forgotten, at_rest = (make_job(spec | {"entrypoint": f"frozen_task:{name}"}, name).run(ranks)[0] for name in ("forgotten", "at_rest"))
    assert (forgotten.exit_code, at_rest.exit_code) == (0, 0), forgotten.output
    assert forgotten.curve("loss") == at_rest.curve("loss")
    assert forgotten.curve("gradient_norm") == at_rest.curve("gradient_norm")


def test_a_frozen_backbone_in_evaluation_mode_stays_in_it(make_job: MakeJob, spec: dict[str, Any], tmp_path: Path) -> None:
    own = spec | {"entrypoint": "frozen_task:backbone"}
    job = make_job(own)
    (end,) = job.run(1)
    assert end.exit_code == 0, end.output
    before, after = initial(own, tmp_path), final_state(job)
    assert {name for name, value in after.items() if not torch.equal(value, before[name])} == {"3.weight"}


def test_a_model_that_is_given_in_evaluation_mode_and_can_be_trained_is_trained_in_training_mode() -> None:
    trainable = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()).eval()
    assert not list(frozen_in_evaluation(trainable))
    frozen = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()).requires_grad_(False)
    assert not list(frozen_in_evaluation(torch.nn.Sequential(frozen, trainable)))
    assert list(frozen_in_evaluation(torch.nn.Sequential(frozen.eval(), trainable))) == [frozen]


def test_groups_have_the_rates_they_were_born_with(spec: dict[str, Any], tmp_path: Path) -> None:
    checked = JobSpec.model_validate(spec | {"entrypoint": "frozen_task:two_rates", "schedule": {"warmup_steps": 4}})
    state = new_state(checked, torch.device("cpu"), tmp_path)
    assert set_learning_rates(state.optimizer, state.peak_rates, checked.schedule, 1, 8) == 0.125
    assert [group["lr"] for group in state.optimizer.param_groups] == [0.125, 0.0125, 0.05]
