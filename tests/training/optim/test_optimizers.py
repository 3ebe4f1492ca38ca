from __future__ import annotations

import pytest
import torch

from paceline.training.optim.optimizers import build_optimizer, clip_gradients, learning_rate
from paceline.training.schema.optimizer import AdamW, Schedule, Sgd


def rates(schedule: Schedule, total: int) -> list[float]:
    return [learning_rate(1.0, schedule, step, total) for step in range(1, total + 1)]


def test_warm_up_is_a_line_that_reaches_the_peak_at_its_last_step() -> None:
    assert rates(Schedule(warmup_steps=4), 10)[:4] == [0.25, 0.5, 0.75, 1.0]


def test_cosine_ends_at_the_smallest_rate_and_never_rises_after_the_warm_up() -> None:
    curve = rates(Schedule(kind="cosine", warmup_steps=2, min_ratio=0.1), 50)
    assert curve[-1] == pytest.approx(0.1)
    assert curve[1:] == sorted(curve[1:], reverse=True)


def test_constant_stays() -> None:
    assert set(rates(Schedule(kind="constant"), 5)) == {1.0}


def test_a_warm_up_longer_than_the_run_is_cut_off() -> None:
    assert rates(Schedule(warmup_steps=100), 3) == [0.01, 0.02, 0.03]


def test_only_matrices_decay() -> None:
    optimizer = build_optimizer(AdamW(weight_decay=0.5), torch.nn.Linear(3, 2))
    assert [(group["params"][0].ndim, group["weight_decay"]) for group in optimizer.param_groups] == [(2, 0.5), (1, 0.0)]


@pytest.mark.parametrize("spec", [AdamW(lr=0.1), Sgd(lr=0.1)])
def test_a_step_goes_downhill(spec: AdamW | Sgd) -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer, inputs = build_optimizer(spec, model), torch.ones(4, 3)
    before = model(inputs).square().mean()
    before.backward()
    optimizer.step()
    assert model(inputs).square().mean() < before


def test_the_reported_norm_is_the_true_one_and_gradients_are_cut_to_the_limit() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    assert clip_gradients(parameters, 1.0).item() == pytest.approx(5.0)
    clipped = torch.cat([parameter.grad for parameter in parameters if parameter.grad is not None])
    assert clipped.norm().item() == pytest.approx(1.0, rel=1e-5)


def test_without_a_limit_the_norm_is_only_measured() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.tensor([4.0])
    assert clip_gradients([parameter], None).item() == 4.0
    assert parameter.grad.item() == 4.0
