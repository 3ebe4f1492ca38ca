from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.plan import Coordinates, assign_evenly
from paceline.parallelism.precision import scaled
from paceline.parallelism.wrapped import SingleProcess
from paceline.training.errors import InvalidInputError
from paceline.training.optim.loss_scale import GROWTH_INTERVAL, INITIAL, LEAST, UNSCALED, LossScale, ReadOnce, loss_scale_for
from paceline.training.saving.shards import tensors_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport, TrainState, new_state
from paceline.training.steps.step import LocalStepRunner
from tests.parallelism.overflow import STEP, overflowing
from tests.parallelism.parity import NothingAsked

CPU = torch.device("cpu")


@pytest.mark.parametrize(("precision", "factor"), [("fp32", 1.0), ("bf16", 1.0), ("fp16", INITIAL)])
def test_only_fp16_scales(precision: str, factor: float) -> None:
    assert scaled(torch.tensor(3.0), loss_scale_for(precision).value).item() == 3.0 * factor  # type: ignore[arg-type]


def test_a_loss_in_fp16_is_scaled_in_fp32() -> None:
    assert scaled(torch.tensor(2.0, dtype=torch.float16), INITIAL).item() == 2 * INITIAL


def test_it_backs_off_at_an_overflow_and_grows_after_two_thousand_good_steps_in_a_row() -> None:
    scale = LossScale(good_steps=GROWTH_INTERVAL - 2).after(1, applied=True).after(2, applied=False)
    assert scale == LossScale(INITIAL / 2, skipped_updates=1)
    for step in range(GROWTH_INTERVAL):
        assert scale.value == INITIAL / 2
        scale = scale.after(step, applied=True)
    assert scale == LossScale(INITIAL, skipped_updates=1)


def test_torchs_own_scaler_goes_the_same_way() -> None:
    """Through overflows, growth and more overflows."""
    theirs = torch.amp.GradScaler("cpu", growth_interval=3)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    ours = LossScale()
    for step, gradient in enumerate([torch.inf, 1.0, 1.0, torch.nan, *[1.0] * 7, torch.inf]):
        theirs.scale(parameter.sum()).backward()
        assert parameter.grad is not None
        parameter.grad.fill_(gradient)
        theirs.step(optimizer)
        theirs.update()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("paceline.training.optim.loss_scale.GROWTH_INTERVAL", 3)
            ours = ours.after(step, applied=ours.admits(parameter.grad.norm()))
        assert ours.value == theirs.get_scale()


def test_what_overflows_at_the_least_scale_ends_the_job_instead_of_skipping_for_ever() -> None:
    scale = LossScale()
    while scale.value > LEAST:
        scale = scale.after(1, applied=False)
    assert scale.skipped_updates == 30
    with pytest.raises(InvalidInputError, match=r"step 31: gradients overflow in fp16 at a loss scale of 6\.1e-05"):
        scale.after(31, applied=False)


def test_a_checkpoint_brings_its_scale_only_to_a_job_that_scales() -> None:
    saved = LossScale(8.0, 3, 5)
    assert LossScale().resumed(saved) == saved
    assert LossScale().resumed(None) == LossScale()  # of an fp32 job
    assert UNSCALED.resumed(saved) == UNSCALED


class Alike:
    """A job of one process, step by step."""

    def __init__(self, cache: Path) -> None:
        self.spec = JobSpec.model_validate(overflowing())
        self.state: TrainState = new_state(self.spec, CPU, cache)
        self.step_runner = LocalStepRunner(
            self.spec,
            self.state,
            SoloGroup(),
            SingleProcess(self.state.task.model),
            Coordinates(),
            assign_evenly(derived.micro_batches(self.spec), 1),
        )

    def run(self, steps: int) -> StepReport:
        reports = [self.step_runner.run(NothingAsked()) for _ in range(steps)]
        return reports[-1]

    @property
    def values(self) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in self.state.task.model.state_dict().items()}


def test_an_overflow_leaves_nothing_in_the_model_and_the_step_is_committed(tmp_path: Path) -> None:
    job = Alike(tmp_path)
    job.run(STEP - 1)
    before = job.values
    report = job.run(1)
    assert (report.applied, job.state.step) == (False, STEP)
    assert not torch.isfinite(torch.tensor(report.gradient_norm))
    torch.testing.assert_close(job.values, before, rtol=0, atol=0)  # running statistics too
    assert job.state.scale == LossScale(INITIAL / 2, skipped_updates=1)
    assert job.run(1).applied
    assert not torch.equal(job.values["layers.0.weight"], before["layers.0.weight"])


def test_reported_norms_are_those_of_fp32(tmp_path: Path) -> None:
    job = Alike(tmp_path)
    assert job.run(1).gradient_norm < 10  # the scaled one is 65,536 times that


def test_looking_at_the_optimizer_before_its_first_update_does_not_count_as_one(tmp_path: Path) -> None:
    """Its first step may be skipped, and then saved or sent: torch makes a state that has counted a step."""
    alone, looked_at = Alike(tmp_path / "a"), Alike(tmp_path / "b")
    tensors_of(looked_at.state)
    for job in (alone, looked_at):
        job.run(3)
    mine, theirs = (tensors_of(job.state)["optimizer"] for job in (alone, looked_at))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert mine["state.layers.0.weight.step"].item() == 3


def test_a_norm_is_fetched_from_its_device_once_however_often_it_is_looked_at() -> None:
    """A second fetch would wait for the update that has been queued since."""
    fetched = []

    class Norm:
        def item(self) -> float:
            fetched.append("norm")
            return 2.5

    norm = ReadOnce(Norm())
    assert fetched == []
    assert (norm.item(), norm.item()) == (2.5, 2.5)
    assert fetched == ["norm"]
